// SPDX-License-Identifier: Apache-2.0
// One sequence of a batch as a batch of its own, over the same memory.
#pragma once

#include <cstdint>
#include <optional>

#include "quire/quire.h"
#include "support/attention_inputs.h"
#include "support/host_tensor.h"

namespace quire::cpu {

inline TensorView rows_of(TensorView tensor, std::int64_t first, std::int64_t count) {
  tensor.data = tensor.as<std::byte>() + bytes_for(tensor.dtype, first * tensor.strides[0]);
  tensor.shape[0] = count;
  return tensor;
}

inline PagedKVCache sequence_of(PagedKVCache cache, std::int64_t sequence) {
  cache.cache_lengths = rows_of(cache.cache_lengths, sequence, 1);
  cache.page_table = rows_of(cache.page_table, sequence, 1);
  if (cache.scales_page_table) {
    cache.scales_page_table = rows_of(*cache.scales_page_table, sequence, 1);
  }
  return cache;
}

// Cuts one sequence out of the tensors of a batch.
class OneSequence {
 public:
  OneSequence(const TensorView& row_offsets, std::int64_t sequence)
      : sequence_(sequence),
        first_(row_offsets.as<const std::uint32_t>()[sequence]),
        count_(row_offsets.as<const std::uint32_t>()[sequence + 1] - first_),
        offsets_(test::HostTensor::of(DType::u32, {2}, {0.0, static_cast<double>(count_)})) {}

  TensorView row_offsets() const { return offsets_.view(); }
  TensorView rows(const TensorView& tensor) const { return rows_of(tensor, first_, count_); }
  std::optional<TensorView> rows(const std::optional<TensorView>& tensor) const {
    return tensor ? std::optional(rows(*tensor)) : std::nullopt;
  }

  // What every op over a ragged batch has.
  template <typename Args> Args common(Args args) const {
    args.row_offsets = row_offsets();
    args.cache = sequence_of(args.cache, sequence_);
    return args;
  }
  template <typename Args> Args with_queries(Args args) const {
    args = common(args);
    args.q = rows(args.q);
    args.out = rows(args.out);
    return args;
  }

 private:
  std::int64_t sequence_;
  std::int64_t first_;
  std::int64_t count_;
  test::HostTensor offsets_;
};

inline FlashAttentionArgs cut(FlashAttentionArgs args, const OneSequence& one) {
  args = one.with_queries(args);
  args.lse = one.rows(args.lse);
  return args;
}

inline MlaDecodeArgs cut(MlaDecodeArgs args, const OneSequence& one) {
  args = one.with_queries(args);
  args.lse = one.rows(args.lse);
  args.kv = one.rows(args.kv);
  return args;
}

// The chunks are the caller's to plan.
inline MlaPrefillArgs cut(MlaPrefillArgs args, const OneSequence& one) {
  args = one.with_queries(args);
  args.lse = one.rows(args.lse);
  args.kv = one.rows(args.kv);
  return args;
}

inline MlaIndexerArgs cut(MlaIndexerArgs args, const OneSequence& one) {
  args = one.with_queries(args);
  args.q_scale = one.rows(args.q_scale);
  return args;
}

inline SparseMlaArgs cut(SparseMlaArgs args, std::int64_t sequence, const OneSequence& one) {
  args = one.with_queries(args);
  args.lse = one.rows(args.lse);
  args.indices = one.rows(args.indices);
  args.topk_lengths = one.rows(args.topk_lengths);
  if (args.extra) {
    args.extra->cache = sequence_of(args.extra->cache, sequence);
    args.extra->indices = one.rows(args.extra->indices);
    args.extra->lengths = one.rows(args.extra->lengths);
  }
  return args;
}

}  // namespace quire::cpu
