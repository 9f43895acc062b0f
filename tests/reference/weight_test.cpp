// SPDX-License-Identifier: Apache-2.0
#include "reference/weight.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "core/block_format.h"
#include "quire/element.h"
#include "support/host_tensor.h"

namespace quire::reference {
namespace {

using test::HostTensor;

// A code for each (n, k) that tells rows, columns and groups apart.
int code_of(std::int64_t n, std::int64_t k) {
  return static_cast<int>((3 * n + 5 * k + k / 7) % 16);
}
int zero_of(std::int64_t n, std::int64_t group) {
  return static_cast<int>((2 * n + group) % 15);
}
double scale_of(std::int64_t n, std::int64_t group) {
  return 0.25 * static_cast<double>(1 + n % 5) + static_cast<double>(group);
}

class DenseWeight : public testing::TestWithParam<DType> {};

TEST_P(DenseWeight, IsReadAsItIs) {
  const HostTensor data = HostTensor::random(GetParam(), {3, 5}, 1);
  const Weight weight{.data = data.view()};
  for (std::int64_t n = 0; n < 3; ++n) {
    const std::vector<double> row = dequantize_row(weight, n);
    ASSERT_EQ(row.size(), 5u);
    for (std::int64_t k = 0; k < 5; ++k) {
      EXPECT_EQ(row[static_cast<std::size_t>(k)], data.at({n, k}));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, DenseWeight, testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& test) { return std::string(name(test.param)); });

TEST(DenseWeight, TransposedViewIsRead) {
  const HostTensor data = HostTensor::of(DType::f32, {2, 3}, {0, 1, 2, 10, 11, 12});
  Weight weight{.data = data.view()};
  std::swap(weight.data.shape[0], weight.data.shape[1]);
  std::swap(weight.data.strides[0], weight.data.strides[1]);
  EXPECT_EQ(dequantize_row(weight, 2), (std::vector<double>{2, 12}));
}

struct Fp8Case {
  std::string name;
  std::int64_t rows;
  std::int64_t columns;
  std::vector<std::int64_t> scale_shape;
  std::vector<std::tuple<std::int64_t, std::int64_t, double>> expected;  // n, k, scale
};

class Fp8Weight : public testing::TestWithParam<Fp8Case> {};

// The scale at (i, j) is 1 + 10 i + j, the codes are 2.
TEST_P(Fp8Weight, UsesTheScaleOfItsPlace) {
  const Fp8Case& c = GetParam();
  const HostTensor data = HostTensor::filled(DType::fp8_e4m3, {c.rows, c.columns}, 2.0);
  const HostTensor scale(DType::f32, c.scale_shape);
  for (std::int64_t i = 0; i < c.scale_shape[0]; ++i) {
    for (std::int64_t j = 0; j < c.scale_shape[1]; ++j) {
      scale.view().store({i, j}, static_cast<double>(1 + 10 * i + j));
    }
  }
  const Weight weight{.data = data.view(), .format = WeightFormat::fp8, .scale = scale.view()};
  for (const auto& [n, k, expected] : c.expected) {
    EXPECT_EQ(dequantize_row(weight, n)[static_cast<std::size_t>(k)], 2.0 * expected)
        << n << ", " << k;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Scales, Fp8Weight,
    testing::Values(
        Fp8Case{"tensor", 3, 130, {1, 1}, {{0, 0, 1}, {2, 129, 1}}},
        Fp8Case{"channel", 3, 130, {3, 1}, {{0, 0, 1}, {1, 129, 11}, {2, 5, 21}}},
        Fp8Case{"block",
                300,
                260,
                {3, 3},
                {{0, 0, 1}, {127, 127, 1}, {128, 127, 11}, {127, 128, 2}, {299, 259, 23}}},
        Fp8Case{"block_of_few_rows", 100, 260, {1, 3}, {{99, 0, 1}, {99, 128, 2}, {0, 259, 3}}},
        Fp8Case{"block_of_few_columns", 300, 64, {3, 1}, {{0, 63, 1}, {128, 0, 11}, {299, 0, 21}}},
        Fp8Case{"channel_of_one_row", 1, 64, {1, 1}, {{0, 63, 1}}}),
    [](const auto& test) { return test.param.name; });

// format, group size, with zero points
using GroupParam = std::tuple<WeightFormat, std::int64_t, bool>;

class GroupWeight : public testing::TestWithParam<GroupParam> {
 protected:
  static constexpr std::int64_t kRows = 16;
  static constexpr std::int64_t kColumns = 256;

  // Nibble that holds column c of eight in a word.
  static std::int64_t nibble_of(WeightFormat format, std::int64_t c) {
    if (format != WeightFormat::awq) return c;
    // Nibbles 0…7 hold columns 0 2 4 6 1 3 5 7.
    return c % 2 == 0 ? c / 2 : 4 + c / 2;
  }

  static void put_nibble(const TensorView& words, std::int64_t row, std::int64_t column,
                         std::int64_t nibble, int code) {
    std::uint32_t& word = words.as<std::uint32_t>()[words.offset({row, column})];
    word = (word & ~(0xfu << (4 * nibble))) | (static_cast<std::uint32_t>(code) << (4 * nibble));
  }

  void build(WeightFormat format, std::int64_t group_size) {
    const std::int64_t groups = kColumns / group_size;
    if (format == WeightFormat::int4) {
      data_ = HostTensor(DType::u4, {kRows, kColumns});
      scale_ = HostTensor(DType::f32, {kRows, groups});
      zeros_ = HostTensor(DType::u8, {kRows, groups});
    } else {
      data_ = format == WeightFormat::awq ? HostTensor(DType::i32, {kColumns, kRows / 8})
                                          : HostTensor(DType::i32, {kColumns / 8, kRows});
      scale_ = HostTensor(DType::f32, {groups, kRows});
      zeros_ = HostTensor(DType::i32, {groups, kRows / 8});
    }
    for (std::int64_t n = 0; n < kRows; ++n) {
      for (std::int64_t k = 0; k < kColumns; ++k) put_code(format, n, k);
      for (std::int64_t group = 0; group < groups; ++group) put_group(format, n, group);
    }
  }

  void put_code(WeightFormat format, std::int64_t n, std::int64_t k) {
    const int code = code_of(n, k);
    if (format == WeightFormat::int4) {
      data_.view().store({n, k}, code);
    } else if (format == WeightFormat::awq) {
      put_nibble(data_.view(), k, n / 8, nibble_of(format, n % 8), code);
    } else {
      put_nibble(data_.view(), k / 8, n, k % 8, code);
    }
  }

  void put_group(WeightFormat format, std::int64_t n, std::int64_t group) {
    const double scale = scale_of(n, group);
    const int zero = zero_of(n, group);  // as stored
    if (format == WeightFormat::int4) {
      scale_.view().store({n, group}, scale);
      zeros_.view().store({n, group}, zero);
    } else {
      scale_.view().store({group, n}, scale);
      put_nibble(zeros_.view(), group, n / 8, nibble_of(format, n % 8), zero);
    }
  }

  HostTensor data_;
  HostTensor scale_;
  HostTensor zeros_;
};

TEST_P(GroupWeight, SubtractsTheZeroPointAndScales) {
  const auto [format, group_size, has_zeros] = GetParam();
  build(format, group_size);
  Weight weight{
      .data = data_.view(), .format = format, .scale = scale_.view(), .group_size = group_size};
  if (has_zeros) weight.zeros = zeros_.view();
  ASSERT_EQ(weight.rows(), kRows);
  ASSERT_EQ(weight.columns(), kColumns);
  for (std::int64_t n = 0; n < kRows; ++n) {
    const std::vector<double> row = dequantize_row(weight, n);
    for (std::int64_t k = 0; k < kColumns; ++k) {
      const std::int64_t group = k / group_size;
      const int stored = zero_of(n, group);
      const int zero = !has_zeros ? 8 : format == WeightFormat::gptq ? stored + 1 : stored;
      EXPECT_EQ(row[static_cast<std::size_t>(k)], (code_of(n, k) - zero) * scale_of(n, group))
          << n << ", " << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, GroupWeight,
                         testing::Combine(testing::Values(WeightFormat::int4, WeightFormat::gptq,
                                                          WeightFormat::gptq_v2, WeightFormat::awq),
                                          testing::Values(32, 64, 128), testing::Bool()),
                         [](const auto& test) {
                           return std::string(name(std::get<0>(test.param))) + "_group_" +
                                  std::to_string(std::get<1>(test.param)) +
                                  (std::get<2>(test.param) ? "_zeros" : "_symmetric");
                         });

// The words of one group, written out by hand.
TEST(GroupWeightGolden, GptqNibblesRunAlongK) {
  std::vector<std::uint32_t> words(4, 0x88888888u);  // [K/8 = 4, N = 1], codes 8
  words[0] = 0x76543210u;
  HostTensor scale = HostTensor::of(DType::f16, {1, 1}, {0.5});
  const Weight weight{.data = TensorView::contiguous(words.data(), DType::i32, {4, 1}),
                      .format = WeightFormat::gptq,
                      .scale = scale.view(),
                      .group_size = 32};
  const std::vector<double> row = dequantize_row(weight, 0);
  for (std::size_t k = 0; k < 8; ++k) EXPECT_EQ(row[k], 0.5 * (static_cast<double>(k) - 8.0));
  EXPECT_EQ(row[8], 0.0);
}

TEST(GroupWeightGolden, AwqNibblesInterleaveN) {
  std::vector<std::uint32_t> words(32, 0x76543210u);  // [K = 32, N/8 = 1]
  std::vector<std::uint32_t> zeros(1, 0u);
  HostTensor scale = HostTensor::filled(DType::f32, {1, 8}, 1.0);
  const Weight weight{.data = TensorView::contiguous(words.data(), DType::i32, {32, 1}),
                      .format = WeightFormat::awq,
                      .scale = scale.view(),
                      .zeros = TensorView::contiguous(zeros.data(), DType::i32, {1, 1}),
                      .group_size = 32};
  const std::vector<double> nibble_of_row{0, 4, 1, 5, 2, 6, 3, 7};
  for (std::int64_t n = 0; n < 8; ++n) {
    EXPECT_EQ(dequantize_row(weight, n)[0], nibble_of_row[static_cast<std::size_t>(n)]) << n;
  }
}

TEST(GroupWeightGolden, GptqZeroPointsAreStoredMinusOne) {
  std::vector<std::uint32_t> words(4 * 8, 0u);
  std::vector<std::uint32_t> zeros(1, 0xf6543217u);
  HostTensor scale = HostTensor::filled(DType::f32, {1, 8}, 1.0);
  Weight weight{.data = TensorView::contiguous(words.data(), DType::i32, {4, 8}),
                .format = WeightFormat::gptq,
                .scale = scale.view(),
                .zeros = TensorView::contiguous(zeros.data(), DType::i32, {1, 1}),
                .group_size = 32};
  EXPECT_EQ(dequantize_row(weight, 0)[0], -8.0);
  EXPECT_EQ(dequantize_row(weight, 1)[0], -2.0);
  EXPECT_EQ(dequantize_row(weight, 7)[0], -16.0);  // no wrap to 0
  weight.format = WeightFormat::gptq_v2;
  EXPECT_EQ(dequantize_row(weight, 0)[0], -7.0);
  EXPECT_EQ(dequantize_row(weight, 7)[0], -15.0);
}

class GgufWeight : public testing::TestWithParam<BlockFormat> {};

// Two rows of several blocks, the second row's pitch longer than its blocks.
TEST_P(GgufWeight, ReadsBlockAfterBlock) {
  const BlockFormat& format = GetParam();
  const std::int64_t block_bytes = format.bytes;
  const std::int64_t pitch = 2 * block_bytes + 7;
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(2 * pitch), 0xff);
  for (std::int64_t block = 0; block < 4; ++block) {
    std::uint8_t* start = bytes.data() + block / 2 * pitch + block % 2 * block_bytes;
    for (std::int64_t i = 0; i < block_bytes; ++i) start[i] = 0x11;
    if (format.is_e8m0) {
      start[0] = static_cast<std::uint8_t>(127 + block);
    } else {
      store_element(start + format.scale_at, DType::f16, 0,
                    std::ldexp(1.0, static_cast<int>(block)));
    }
    if (format.has_mins()) store_element(start + format.min_at, DType::f16, 0, 0.0);
  }
  Weight weight{.data = TensorView::contiguous(bytes.data(), DType::u8, {2, 2 * block_bytes}),
                .format = format.format};
  weight.data.strides[0] = pitch;
  const std::int64_t columns = weight.columns() / 2;
  const double unit = dequantize_row(weight, 0)[0];
  ASSERT_NE(unit, 0.0);
  for (std::int64_t block = 0; block < 4; ++block) {
    const std::vector<double> row = dequantize_row(weight, block / 2);
    EXPECT_EQ(row[static_cast<std::size_t>(block % 2 * columns)],
              std::ldexp(unit, static_cast<int>(block)))
        << block;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, GgufWeight, testing::ValuesIn(kBlockFormats),
                         [](const auto& test) { return std::string(name(test.param.format)); });

TEST(Weight, PermNamesTheInputColumn) {
  const HostTensor data = HostTensor::filled(DType::f32, {1, 3}, 1.0);
  const HostTensor perm = HostTensor::of(DType::i32, {3}, {2, 0, 1});
  Weight weight{.data = data.view()};
  EXPECT_EQ(input_column(weight, 2), 2);
  weight.perm = perm.view();
  EXPECT_EQ(input_column(weight, 0), 2);
  EXPECT_EQ(input_column(weight, 1), 0);
  EXPECT_EQ(input_column(weight, 2), 1);
}

}  // namespace
}  // namespace quire::reference
