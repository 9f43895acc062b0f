// SPDX-License-Identifier: Apache-2.0
// The kernels of flash_attention over K and V without pages: the same rows in a ragged or a dense
// tensor give the oracle's results, and the bits that they give in pages.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "cpu/attention_target.h"
#include "cpu/flash_attention/flash_attention.h"
#include "quire/contiguous_operand.h"
#include "quire/paged_kv_operand.h"
#include "quire/ragged_operand.h"
#include "reference/flash_attention.h"
#include "reference/ragged.h"
#include "support/attention_inputs.h"

namespace quire::cpu {
namespace {

using test::CacheOptions;
using test::FlashInputs;
using test::HostTensor;
using test::kTestLayer;

// One side of a paged layer, its rows and scales copied into tensors [keys, heads, …]: sequence after
// sequence.
struct RaggedRows {
  RaggedRows(const FlashInputs& inputs, const KvLayerView& view) : format(view.row_format) {
    const PagedKVCache cache = inputs.cache.view();
    offsets.push_back(0);
    for (std::int64_t sequence = 0; sequence < cache.batch(); ++sequence) {
      const std::int64_t keys = reference::num_keys(inputs.cache.row_offsets(), cache, sequence);
      offsets.push_back(offsets.back() + static_cast<std::uint32_t>(keys));
    }
    const std::int64_t columns = format.row_bytes * 8 / bits(cache.dtype());
    values = HostTensor(cache.dtype(), {offsets.back(), view.num_heads, columns});
    if (format.uses_plane()) {
      scales.emplace(view.scales.dtype, std::vector<std::int64_t>{offsets.back(), view.num_heads,
                                                                  view.scales.num_slots});
    }
    copy_rows(PagedKvOperand(view), view);
  }

  RaggedOperand operand() const {
    return {values.view(),
            TensorView::contiguous(const_cast<std::uint32_t*>(offsets.data()), DType::u32,
                                   {std::ssize(offsets)}),
            extras()};
  }
  RowExtras extras() const {
    RowExtras extras{.format = format};
    if (scales) extras.scales = scales->view();
    return extras;
  }

  RowFormat format;
  std::vector<std::uint32_t> offsets{};
  HostTensor values;                   // [keys, heads, row]
  std::optional<HostTensor> scales{};  // [keys, heads, slots]

 private:
  void copy_rows(const KvOperandRef& paged, const KvLayerView& view) {
    std::byte* row = values.bytes().data();
    std::byte* plane = scales ? scales->bytes().data() : nullptr;
    const std::int64_t plane_bytes = bytes_for(view.scales.dtype, view.scales.num_slots);
    for (std::int64_t sequence = 0; sequence + 1 < std::ssize(offsets); ++sequence) {
      const std::int64_t keys = offsets[static_cast<std::size_t>(sequence + 1)] -
                                offsets[static_cast<std::size_t>(sequence)];
      for (std::int64_t key = 0; key < keys; ++key) {
        for (std::int64_t head = 0; head < view.num_heads; ++head) {
          const RowAddress from = paged.row(sequence, head, key);
          row = std::copy_n(from.row, format.row_bytes, row);
          if (plane != nullptr) plane = std::copy_n(from.plane, plane_bytes, plane);
        }
      }
    }
  }
};

class OperandTarget : public RowTarget {
 protected:
  // The inputs without their cache: whoever reads it fails.
  static FlashAttentionArgs args_of(const FlashInputs& inputs, const Mask& mask) {
    FlashAttentionArgs args = inputs.args();
    args.cache = {};
    args.mask = mask;
    return args;
  }

  Results run_target(FlashInputs& inputs, const FlashAttentionArgs& args, const KvOperandRef& keys,
                     const std::optional<KvOperandRef>& values, int num_threads = 2) const {
    poison(inputs.out);
    poison(inputs.lse);
    flash_attention_over(args, keys, values, context(num_threads), GetParam());
    return read_results(inputs.out, inputs.lse);
  }

  static Results run_oracle(FlashInputs& inputs, const FlashAttentionArgs& args,
                            const KvOperandRef& keys, const KvOperandRef& values,
                            reference::Arithmetic arithmetic) {
    poison(inputs.out);
    poison(inputs.lse);
    reference::flash_attention_over(args, keys, values, arithmetic);
    return read_results(inputs.out, inputs.lse);
  }

  void expect_oracle(FlashInputs& inputs, const FlashAttentionArgs& args, const KvOperandRef& keys,
                     const KvOperandRef& values) const {
    const Results exact = run_oracle(inputs, args, keys, values, reference::Arithmetic::exact);
    const Results naive = run_oracle(inputs, args, keys, values, reference::Arithmetic::naive);
    expect_rule(args.out.dtype, run_target(inputs, args, keys, values), exact, naive);
  }

  // The same rows in pages and in ragged tensors.
  void expect_bits_of_pages(FlashInputs& inputs, const Mask& mask) const {
    const PagedKVCache cache = inputs.cache.view();
    const RaggedRows key_rows(inputs, cache.key(kTestLayer));
    const RaggedRows value_rows(inputs, cache.value(kTestLayer));
    const RaggedOperand keys = key_rows.operand();
    const RaggedOperand values = value_rows.operand();
    const PagedKvOperand paged_keys(cache.key(kTestLayer));
    const PagedKvOperand paged_values(cache.value(kTestLayer));
    const FlashAttentionArgs args = args_of(inputs, mask);
    expect_oracle(inputs, args, keys, values);
    for (const int num_threads : kThreadCounts) {
      const Results paged = run_target(inputs, args, paged_keys, paged_values, num_threads);
      EXPECT_EQ(run_target(inputs, args, keys, values, num_threads).bits, paged.bits);
    }
    const auto exact = reference::Arithmetic::exact;
    EXPECT_EQ(run_oracle(inputs, args, keys, values, exact).bits,
              run_oracle(inputs, args, paged_keys, paged_values, exact).bits);
  }
};

INSTANTIATE_TEST_SUITE_P(, OperandTarget, kEveryTarget, target_name);

// Prefill, decode, nothing and a few tokens behind a long context; 3 query heads per KV head.
CacheOptions ragged(const RowFormat& format) {
  return {.cache_lengths = {0, 37, 5, 300},
          .new_tokens = {41, 1, 0, 3},
          .row_format = format,
          .page_size = 8,
          .num_kv_heads = 2};
}

TEST_P(OperandTarget, RaggedRowsOfEveryDtype) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    SCOPED_TRACE(name(dtype));
    FlashInputs inputs(ragged(RowFormat::uniform(dtype, 33)), 6, dtype);
    expect_bits_of_pages(inputs, Mask::causal());
  }
}

TEST_P(OperandTarget, RaggedRowsUnderOtherMasks) {
  for (const Mask& mask : {Mask::full(), Mask::causal() & Mask::sliding_window(40)}) {
    FlashInputs inputs(ragged(RowFormat::uniform(DType::bf16, 16)), 6, DType::bf16);
    expect_bits_of_pages(inputs, mask);
  }
}

TEST_P(OperandTarget, RaggedRowsWithScales) {
  for (const RowFormat& format :
       {RowFormat::scaled(DType::fp8_e4m3, 32, 16), RowFormat::scaled(DType::i8, 24, 24),
        RowFormat::mla_fp8_block(32, 8, 16)}) {
    SCOPED_TRACE(format.describe());
    FlashInputs inputs(ragged(format), 4, DType::bf16);
    expect_bits_of_pages(inputs, Mask::causal());
  }
}

// Splits over the keys of few tokens, and tokens in several blocks.
TEST_P(OperandTarget, RaggedRowsOfLongSequences) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    FlashInputs inputs({.cache_lengths = {2100, 1023, 90},
                        .new_tokens = {2, 1, 150},
                        .row_format = RowFormat::uniform(dtype, 16),
                        .page_size = 32,
                        .num_kv_heads = 2},
                       4, dtype);
    expect_bits_of_pages(inputs, Mask::causal());
  }
}

TEST_P(OperandTarget, VMayBeTheFirstColumnsOfTheRaggedKRow) {
  FlashInputs inputs(ragged(RowFormat::uniform(DType::bf16, 48)), 6, DType::bf16);
  const RaggedRows rows(inputs, inputs.cache.view().key(kTestLayer));
  const RaggedOperand keys = rows.operand();
  const FlashAttentionArgs args = args_of(inputs, Mask::causal());
  const Results shared = run_target(inputs, args, keys, std::nullopt);
  EXPECT_EQ(shared.bits, run_target(inputs, args, keys, keys).bits);
}

TEST_P(OperandTarget, RowsOfOtherSequencesNeverReachAResult) {
  FlashInputs inputs(ragged(RowFormat::uniform(DType::f32, 16)), 6, DType::f32);
  const PagedKVCache cache = inputs.cache.view();
  RaggedRows keys(inputs, cache.key(kTestLayer));
  RaggedRows values(inputs, cache.value(kTestLayer));
  const FlashAttentionArgs args = args_of(inputs, Mask::full());
  const RaggedOperand key_operand = keys.operand();
  const RaggedOperand value_operand = values.operand();
  const Results before = run_target(inputs, args, key_operand, value_operand);
  // The rows of sequence 1, between those of 0 and 3, become NaN.
  for (RaggedRows* rows : {&keys, &values}) {
    std::byte* data = rows->values.bytes().data();
    const std::int64_t stride = std::int64_t{2} * rows->format.row_bytes;
    std::fill(data + rows->offsets[1] * stride, data + rows->offsets[2] * stride, std::byte{0xff});
  }
  const Results after = run_target(inputs, args, key_operand, value_operand);
  const auto* tokens = inputs.cache.row_offsets().as<const std::uint32_t>();
  const std::size_t row = 6 * 16;  // of a token
  for (std::size_t i = 0; i < before.out.size(); ++i) {
    const bool is_spoiled = i / row >= tokens[1] && i / row < tokens[2];
    if (!is_spoiled) {
      ASSERT_EQ(after.out[i], before.out[i]) << i;
    }
  }
}

TEST_P(OperandTarget, DenseRowsOfEqualLengths) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    FlashInputs inputs({.cache_lengths = {290, 270, 300},
                        .new_tokens = {10, 30, 0},
                        .row_format = RowFormat::uniform(dtype, 24),
                        .page_size = 8,
                        .num_kv_heads = 2},
                       6, dtype);
    const PagedKVCache cache = inputs.cache.view();
    const RaggedRows key_rows(inputs, cache.key(kTestLayer));
    const RaggedRows value_rows(inputs, cache.value(kTestLayer));
    const auto dense = [](const RaggedRows& rows) {
      TensorView view = TensorView::contiguous(rows.values.view().data, rows.values.view().dtype,
                                               {3, 300, 2, 24});
      return ContiguousOperand(view, rows.extras());
    };
    const ContiguousOperand keys = dense(key_rows);
    const ContiguousOperand values = dense(value_rows);
    const FlashAttentionArgs args = args_of(inputs, Mask::causal());
    expect_oracle(inputs, args, keys, values);
    const RaggedOperand ragged_keys = key_rows.operand();
    const RaggedOperand ragged_values = value_rows.operand();
    EXPECT_EQ(run_target(inputs, args, keys, values).bits,
              run_target(inputs, args, ragged_keys, ragged_values).bits);
  }
}

}  // namespace
}  // namespace quire::cpu
