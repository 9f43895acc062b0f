// SPDX-License-Identifier: Apache-2.0
// The packed order of int4 weights: what packing writes, the kernels' decoding finds. Host code, so it
// needs no GPU.
#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "cuda/common/matmul/int4/pack_order.h"
#include "fused_qkv_subject.h"
#include "reference/weight.h"

namespace quire::cuda {
namespace {

struct Format {
  std::string name;
  WeightFormat format;
  std::int64_t group_size;
  bool has_zeros;
};

std::vector<Format> formats() {
  std::vector<Format> all;
  for (const WeightFormat format :
       {WeightFormat::int4, WeightFormat::gptq, WeightFormat::gptq_v2, WeightFormat::awq}) {
    for (const std::int64_t group_size : {32, 64, 128}) {
      for (const bool has_zeros : {false, true}) {
        all.push_back({std::string(name(format)) + "_g" + std::to_string(group_size) +
                           (has_zeros ? "_zeros" : ""),
                       format, group_size, has_zeros});
      }
    }
  }
  return all;
}

// 168 rows end inside a panel; 320 columns inside a step, unless a group is one.
test::FusedQkvSubject subject_of(const Format& format) {
  return test::FusedQkvSubject({.name = format.name,
                                .hidden = format.group_size == 128 ? 384 : 320,
                                .format = format.format,
                                .has_zeros = format.has_zeros,
                                .group_size = format.group_size});
}

struct Packed {
  Int4Order order;
  std::vector<std::byte> storage;

  explicit Packed(const Weight& weight)
      : order(int4_order(weight.rows(), weight.columns(), weight.group_size, weight.scale->dtype)),
        storage(static_cast<std::size_t>(order.bytes()), std::byte{0xa5}) {
    const Int4Source source = make_source(weight);
    auto* words = reinterpret_cast<std::uint32_t*>(storage.data());
    for (std::int64_t i = 0; i < order.code_offset(order.panels, 0) / 4; ++i) {
      words[i] = packed_word(source, order, i);
    }
    for (int row = 0; row < order.panels * kPanelRows; ++row) {
      for (int group = 0; group < order.steps * order.groups_per_step; ++group) {
        pack_side(source, order, row, group, storage.data());
      }
    }
  }
  double scale(int row, int column) const {
    return load_element(packed_scale(storage.data(), order, row, column), order.scale_dtype, 0);
  }
};

class Int4OrderTest : public testing::TestWithParam<Format> {};

TEST_P(Int4OrderTest, UnpacksToTheReferencesNumbers) {
  const test::FusedQkvSubject subject = subject_of(GetParam());
  const Weight& weight = subject.args.weight;
  const Packed packed(weight);
  for (int row = 0; row < weight.rows(); ++row) {
    const std::vector<double> expected = reference::dequantize_row(weight, row);
    for (int column = 0; column < weight.columns(); ++column) {
      const std::uint32_t codes =
          unpack_codes(packed.storage.data(), packed.order, row, column / 8 * 8);
      const int code = static_cast<int>(codes >> (column % 8 * 4) & 15u);
      const int zero = packed_zero(packed.storage.data(), packed.order, row, column);
      ASSERT_EQ((code - zero) * packed.scale(row, column),
                expected[static_cast<std::size_t>(column)])
          << row << ", " << column;
    }
  }
}

// A row or group behind the end has scale 0: whatever its codes are, it adds nothing.
TEST_P(Int4OrderTest, PaddingAddsNothing) {
  const test::FusedQkvSubject subject = subject_of(GetParam());
  const Weight& weight = subject.args.weight;
  const Packed packed(weight);
  for (int row = 0; row < packed.order.panels * kPanelRows; ++row) {
    for (int column = 0; column < packed.order.steps * kStepColumns; column += 32) {
      if (row < weight.rows() && column < weight.columns()) continue;
      EXPECT_EQ(packed.scale(row, column), 0.0) << row << ", " << column;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Int4OrderTest, testing::ValuesIn(formats()),
                         [](const auto& info) { return info.param.name; });

// Lane, word and register of the wgmma operand, as the instruction defines them, against the place that
// packing gives to a row and column.
TEST(Int4FragmentTest, ARotationBringsAPairOfCodes) {
  for (int thread = 0; thread < 128; ++thread) {
    for (int word = 0; word < 4; ++word) {
      for (int part = 0; part < 4; ++part) {
        for (int e = 0; e < 2; ++e) {
          const int row = thread / 32 * 16 + thread % 32 / 4 + part % 2 * 8;
          const int column = word * 16 + part / 2 * 8 + thread % 4 * 2 + e;
          const CodePlace place = code_place(row, column);
          EXPECT_EQ(place.word, thread * 4 + word);
          // After the rotation the first of the pair stands in the low half, at bits 3 – 6.
          EXPECT_EQ((place.bit - 4 * part + 32) % 32, 16 * e + 3);
        }
      }
    }
  }
}

// At bits 3 - 6 of a half: the step of bf16's subnormal numbers is 2^-133, that of f16's 2^-24.
TEST(Int4FragmentTest, ACodeIsASubnormalNumber) {
  for (std::uint16_t code = 0; code < 16; ++code) {
    const auto bits = static_cast<std::uint16_t>(code << 3);
    EXPECT_EQ(load_element(&bits, DType::bf16, 0), code * 0x1p-130);
    EXPECT_EQ(load_element(&bits, DType::f16, 0), code * 0x1p-21);
  }
}

TEST(Int4FragmentTest, EveryZeroIsExact) {
  for (unsigned zero = 0; zero < 256; ++zero) {
    const std::uint16_t bits = zero_bits(zero);
    EXPECT_EQ(load_element(&bits, DType::bf16, 0), -0.125 * zero);
  }
}

}  // namespace
}  // namespace quire::cuda
