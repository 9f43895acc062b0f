// SPDX-License-Identifier: Apache-2.0
// Few queries over rows of codes, which are multiplied as they come from memory: a code times its scale is rounded once,
// as it is where rows are decoded first, so that the numbers in an f32 cache give the same bits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cpu/attention_target.h"
#include "quire/element.h"
#include "quire/ops/flash_attention.h"
#include "support/attention_inputs.h"

namespace quire::cpu {
namespace {

using test::CacheOptions;
using test::FlashInputs;
using test::kTestLayer;

constexpr std::int64_t kKvHeads = 2;

CacheOptions options(const RowFormat& format) {
  return {.cache_lengths = {0, 37, 150, 3, 131},
          .new_tokens = {1, 1, 1, 2, 0},
          .row_format = format,
          .page_size = 8,
          .num_kv_heads = kKvHeads};
}

template <typename Function> void over_rows(const FlashInputs& inputs, Function&& function) {
  const PagedKVCache cache = inputs.cache.view();
  const auto* offsets = inputs.cache.row_offsets().as<const std::uint32_t>();
  for (std::int64_t sequence = 0; sequence < cache.batch(); ++sequence) {
    const std::int64_t keys =
        cache.cache_length(sequence) + offsets[sequence + 1] - offsets[sequence];
    for (std::int64_t head = 0; head < kKvHeads; ++head) {
      for (std::int64_t key = 0; key < keys; ++key) function(sequence, head, key);
    }
  }
}

// The numbers of `codes` in the rows of `numbers`.
void copy_numbers(const FlashInputs& codes, const FlashInputs& numbers) {
  const KvLayerView from[] = {codes.cache.view().key(kTestLayer),
                              codes.cache.view().value(kTestLayer)};
  const KvLayerView to[] = {numbers.cache.view().key(kTestLayer),
                            numbers.cache.view().value(kTestLayer)};
  over_rows(codes, [&](std::int64_t sequence, std::int64_t head, std::int64_t key) {
    for (int side = 0; side < 2; ++side) {
      for (std::int32_t column = 0; column < from[side].width(); ++column) {
        to[side].store(sequence, head, key, column, from[side].load(sequence, head, key, column));
      }
    }
  });
}

// Scales of K and V: side 0 and 1.
template <typename ScaleOf> void set_scales(const FlashInputs& inputs, const ScaleOf& scale_of) {
  const KvLayerView sides[] = {inputs.cache.view().key(kTestLayer),
                               inputs.cache.view().value(kTestLayer)};
  over_rows(inputs, [&](std::int64_t sequence, std::int64_t head, std::int64_t key) {
    for (int side = 0; side < 2; ++side) {
      sides[side].store_scale(sequence, head, key, 0, scale_of(side, key));
    }
  });
}

class AttentionCodes : public RowTarget {
 protected:
  Results run(FlashInputs& inputs, double scale) const {
    FlashAttentionArgs args = inputs.args();
    args.scale = scale;
    poison(inputs.out);
    poison(inputs.lse);
    flash_attention(args, context(2));
    return read_results(inputs.out, inputs.lse);
  }

  void expect_bits_of_numbers(FlashInputs& codes, double scale = 0.1) const {
    const auto width = static_cast<std::int32_t>(codes.q.view().shape[2]);
    FlashInputs numbers(options(RowFormat::uniform(DType::f32, width)), codes.q.view().shape[1]);
    copy_numbers(codes, numbers);
    const Results actual = run(codes, scale);
    const Results expected = run(numbers, scale);
    ASSERT_EQ(actual.out.size(), expected.out.size());
    for (std::size_t i = 0; i < expected.out.size(); ++i) {
      const bool are_nan = std::isnan(actual.out[i]) && std::isnan(expected.out[i]);
      ASSERT_TRUE(are_nan || actual.out[i] == expected.out[i])
          << "column " << i << ": " << actual.out[i] << " not " << expected.out[i];
    }
  }
};

INSTANTIATE_TEST_SUITE_P(, AttentionCodes, kEveryTarget, target_name);

// Whole vectors, an odd number of them, and columns that fill none; one to sixteen queries a KV head.
TEST_P(AttentionCodes, GiveTheBitsOfTheirNumbers) {
  for (const DType dtype : {DType::fp8_e4m3, DType::i8}) {
    for (const std::int32_t width : {16, 64, 72, 80, 128}) {
      for (const std::int64_t queries : {1, 4, 7, 8, 16}) {
        std::vector<RowFormat> formats{RowFormat::scaled(dtype, width, width),
                                       RowFormat::scaled(dtype, width, width, DType::bf16),
                                       RowFormat::scaled(dtype, width, 8)};
        if (dtype != DType::i8) formats.push_back(RowFormat::uniform(dtype, width));
        for (std::size_t i = 0; i < formats.size(); ++i) {
          SCOPED_TRACE(std::string(name(dtype)) + " " + std::to_string(width) + " columns, " +
                       std::to_string(queries) + " queries, format " + std::to_string(i));
          FlashInputs inputs(options(formats[i]), queries * kKvHeads);
          expect_bits_of_numbers(inputs);
        }
      }
    }
  }
}

// 2^8 of the conversion of e4m3 is left to the scale, which may be too large to take it.
TEST_P(AttentionCodes, TakeAnyScale) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : {DType::fp8_e4m3, DType::i8}) {
    for (const double large : {0x1p99, -0x1p101, 0x1p122, 0x1p-126, 0x1p-149, 0.0, kInfinity,
                               std::numeric_limits<double>::quiet_NaN()}) {
      SCOPED_TRACE(std::string(name(dtype)) + " " + std::to_string(large));
      FlashInputs inputs(options(RowFormat::scaled(dtype, 32, 32)), 4 * kKvHeads);
      set_scales(inputs, [&](int side, std::int64_t key) {
        return side == 1 && key % 20 == 17 ? large : 0.01;
      });
      expect_bits_of_numbers(inputs);
      set_scales(inputs, [&](int side, std::int64_t key) {
        return side == 0 && key % 20 == 17 ? large : 0.01;
      });
      expect_bits_of_numbers(inputs, 0x1p-110);
    }
  }
}

TEST_P(AttentionCodes, KeepEveryCode) {
  for (const DType dtype : {DType::fp8_e4m3, DType::i8}) {
    FlashInputs inputs(options(RowFormat::scaled(dtype, 64, 64)), 4 * kKvHeads);
    set_scales(inputs, [](int, std::int64_t) { return 0.5; });
    const KvLayerView values = inputs.cache.view().value(kTestLayer);
    over_rows(inputs, [&](std::int64_t sequence, std::int64_t head, std::int64_t key) {
      std::byte* row = values.row(sequence, key, head);
      for (std::int64_t column = 0; column < 64; ++column) {
        const bool is_nan = (64 * key + column) % 128 == 127 && dtype == DType::fp8_e4m3;
        const bool is_kept = !is_nan || column == 63;  // NaN of one column alone
        row[column] = is_kept ? static_cast<std::byte>(64 * key + column) : std::byte{0};
      }
    });
    expect_bits_of_numbers(inputs);
  }
}

}  // namespace
}  // namespace quire::cpu
