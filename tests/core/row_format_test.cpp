// SPDX-License-Identifier: Apache-2.0
#include "quire/row_format.h"

#include <gtest/gtest.h>

#include <type_traits>

namespace quire {
namespace {

TEST(RowFormat, IsTriviallyCopyableSoThatKernelsTakeItByValue) {
  static_assert(std::is_trivially_copyable_v<RowFormat>);
}

struct Known {
  const char* name;
  RowFormat format;
  std::int32_t width;
  std::int32_t row_bytes;
  std::int32_t slots;
};

class KnownRowTest : public testing::TestWithParam<Known> {};

TEST_P(KnownRowTest, HasTheBytesOfTheOriginal) {
  const Known& row = GetParam();
  EXPECT_EQ(row.format.width(), row.width);
  EXPECT_EQ(row.format.row_bytes, row.row_bytes);
  EXPECT_EQ(row.format.plane_slots(), row.slots);
}

TEST_P(KnownRowTest, PartsCoverTheRowWithoutOverlap) {
  const RowFormat& format = GetParam().format;
  std::int32_t end = 0;
  for (std::int32_t p = 0; p < format.num_parts; ++p) {
    const RowPart& part = format.parts[p];
    EXPECT_GE(part.offset_bytes, end);
    end = part.offset_bytes + static_cast<std::int32_t>(bytes_for(part.dtype, part.width));
    if (part.scale_source != ScaleSource::in_row) continue;
    EXPECT_GE(part.scale_offset_bytes, end);
    const std::int32_t scales = (part.width + part.granularity - 1) / part.granularity;
    end = part.scale_offset_bytes + static_cast<std::int32_t>(bytes_for(part.scale_dtype, scales));
  }
  EXPECT_EQ(end, format.row_bytes);
}

TEST_P(KnownRowTest, EveryColumnIsFoundInOrder) {
  const RowFormat& format = GetParam().format;
  std::int32_t column = 0;
  for (std::int32_t p = 0; p < format.num_parts; ++p) {
    for (std::int32_t i = 0; i < format.parts[p].width; ++i, ++column) {
      const RowFormat::Column place = format.locate(column);
      ASSERT_EQ(place.part, p);
      ASSERT_EQ(place.index, i);
    }
  }
  EXPECT_EQ(column, format.width());
}

INSTANTIATE_TEST_SUITE_P(
    Table, KnownRowTest,
    testing::Values(
        Known{"bf16_576", RowFormat::uniform(DType::bf16, 576), 576, 1152, 0},
        Known{"fp8_576", RowFormat::uniform(DType::fp8_e4m3, 576), 576, 576, 0},
        Known{"token_640", RowFormat::mla_fp8_token(), 576, 640, 1},
        Known{"block_656", RowFormat::mla_fp8_block(), 576, 656, 0},
        Known{"fp8_128_scaled", RowFormat::scaled(DType::fp8_e4m3, 128, 128), 128, 128, 1},
        Known{"i8_96_per_64", RowFormat::scaled(DType::i8, 96, 64), 96, 96, 2},
        Known{"i4_64", RowFormat::uniform(DType::i4, 64), 64, 32, 0},
        // A row nobody has invented yet: other widths, other block, f16 rope.
        Known{"block_other", RowFormat::mla_fp8_block(192, 32, 64, DType::f16), 224, 268, 0}),
    [](const auto& info) { return info.param.name; });

TEST(RowFormat, DescribeSpellsTheRowOut) {
  EXPECT_EQ(RowFormat::mla_fp8_block().describe(),
            "fp8_e4m3x512 (f32 scale per 128 in row) + bf16x64, 656 B");
  EXPECT_EQ(RowFormat::uniform(DType::bf16, 128).describe(), "bf16x128, 256 B");
}

TEST(RowFormat, EqualityComparesEveryPart) {
  EXPECT_EQ(RowFormat::mla_fp8_block(), RowFormat::mla_fp8_block());
  EXPECT_NE(RowFormat::mla_fp8_block(), RowFormat::mla_fp8_block(512, 64, 64));
  EXPECT_NE(RowFormat::mla_fp8_block(), RowFormat::mla_fp8_token());
}

}  // namespace
}  // namespace quire
