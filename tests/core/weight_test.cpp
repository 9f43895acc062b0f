// SPDX-License-Identifier: Apache-2.0
#include "quire/weight.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

struct Shape {
  WeightFormat format;
  DType dtype;
  std::int64_t dim0;
  std::int64_t dim1;
  std::int64_t rows;
  std::int64_t columns;
};

class WeightShapeTest : public testing::TestWithParam<Shape> {};

TEST_P(WeightShapeTest, LogicalShapeFollowsFromTheStoredOne) {
  const Shape& row = GetParam();
  const Weight weight{.data = TensorView::contiguous(nullptr, row.dtype, {row.dim0, row.dim1}),
                      .format = row.format};
  EXPECT_EQ(weight.rows(), row.rows);
  EXPECT_EQ(weight.columns(), row.columns);
}

TEST_P(WeightShapeTest, NameReadsBack) {
  EXPECT_EQ(weight_format_from_name(name(GetParam().format)), GetParam().format);
}

// N = 96 rows, K = 512 columns in every format.
INSTANTIATE_TEST_SUITE_P(
    Table, WeightShapeTest,
    testing::Values(Shape{WeightFormat::dense, DType::bf16, 96, 512, 96, 512},
                    Shape{WeightFormat::fp8, DType::fp8_e4m3, 96, 512, 96, 512},
                    Shape{WeightFormat::int4, DType::u4, 96, 512, 96, 512},
                    Shape{WeightFormat::gptq, DType::i32, 64, 96, 96, 512},
                    Shape{WeightFormat::gptq_v2, DType::i32, 64, 96, 96, 512},
                    Shape{WeightFormat::awq, DType::i32, 512, 12, 96, 512},
                    Shape{WeightFormat::q4_0, DType::u8, 96, 16 * 18, 96, 512},
                    Shape{WeightFormat::q4_1, DType::u8, 96, 16 * 20, 96, 512},
                    Shape{WeightFormat::q5_0, DType::u8, 96, 16 * 22, 96, 512},
                    Shape{WeightFormat::q5_1, DType::u8, 96, 16 * 24, 96, 512},
                    Shape{WeightFormat::q8_0, DType::u8, 96, 16 * 34, 96, 512},
                    Shape{WeightFormat::iq4_nl, DType::u8, 96, 16 * 18, 96, 512},
                    Shape{WeightFormat::mxfp4, DType::u8, 96, 16 * 17, 96, 512},
                    Shape{WeightFormat::q4_k, DType::u8, 96, 2 * 144, 96, 512},
                    Shape{WeightFormat::q5_k, DType::u8, 96, 2 * 176, 96, 512},
                    Shape{WeightFormat::q6_k, DType::u8, 96, 2 * 210, 96, 512}));

TEST(Weight, UnknownFormatNameIsNotGuessed) {
  EXPECT_FALSE(weight_format_from_name("q3_k").has_value());
}

}  // namespace
}  // namespace quire
