// SPDX-License-Identifier: Apache-2.0
// One piece of attention work as its kernels see it: plain data, made by a driver.
//
// An item is a block of query rows that share their keys, for one or several KV heads:
//   out(r) = softmax(modify(q(r) · K)) · V      over the keys [first_key, last_key) that r sees
// An item that covers only some of its rows' keys leaves a state (maximum, sum, unnormalised
// output) instead, and a MergeItem joins such states in the order of their keys.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/runtime/row_plan.h"
#include "quire/dtype.h"
#include "quire/kv_operand.h"

namespace quire::cpu {

struct QueryRow {
  const std::byte* q;     // [key_width] of q_dtype
  std::byte* out;         // [value_width] of out_dtype
  float* lse;             // null: not asked for
  std::int64_t token;     // row of q and out: what a MaskFunction knows the row by
  std::int64_t position;  // absolute
  std::int64_t begin;     // it sees no key outside [begin, end)
  std::int64_t end;
  // ALiBi counts from the key where it is largest, not from the position: big distances would cost
  // bits. finish_row sets the difference right.
  std::int64_t slope_base;
  float slope;  // 0: none
  float sink;   // -inf: none
};

// One side of an item: a sequence of an operand, whose rows are looked up once per chunk and head.
struct SideSource {
  const KvOperandRef* operand;
  RowPlan plan;
};

// Where K and V come from. With shared_rows V is the first columns of the K row, and `values` is as
// `keys`.
struct KeySource {
  SideSource keys;
  SideSource values;
  std::int64_t sequence;  // of both operands
  bool shared_rows;
};

// visible [count]: nonzero where the row sees key first + j.
using MaskFunction = void (*)(const void* state, const QueryRow& row, std::int64_t first, int count,
                              std::uint8_t* visible);

struct ScoreRule {
  double scale;
  float softcap;  // 0: none
};

// The state of rows over some of their keys.
struct RowStates {
  float* out;       // [rows, value_width], not normalised
  double* maximum;  // [rows], in units of the natural log; -inf: no key seen, or none above -inf
  float* sum;       // [rows]
};

struct AttentionItem {
  const QueryRow* rows;  // [num_heads, rows_per_head]
  std::int64_t chunk;    // keys whose scores are weighed together; a multiple of 32
  std::int64_t packed;   // keys whose K and V are packed together; a multiple of chunk
  std::int64_t num_heads;
  std::int64_t first_head;  // of the operands: first_head + h
  std::int64_t rows_per_head;
  std::int64_t key_width;
  std::int64_t value_width;
  std::int64_t first_key;
  std::int64_t last_key;
  KeySource source;
  MaskFunction mask;  // null: a row sees exactly [begin, end)
  const void* mask_state;
  ScoreRule score;
  DType q_dtype;
  DType out_dtype;
  RowStates states;  // states.out null: the item writes its rows' results
  // Few rows, for which packing would not pay: an engine that can multiplies K and V as they come
  // from memory. Results differ in bits, so this must depend on the sequence alone.
  bool is_streamed;
};

// K and V that are not stored but made from latents: [K | V] = latent · weightᵀ, rounded to
// `rounded`, and the cache row's rope columns behind K. The item has one head.
struct UpProjection {
  const std::byte* weight;  // the head's [nope + value, latent]
  DType weight_dtype;
  std::int64_t column_stride;  // elements
  std::int64_t depth_stride;
  const float* scale;  // fp8: block scales of the whole weight; null: none
  std::int64_t scale_row_stride;
  std::int64_t scale_depth_stride;
  std::int64_t first_row;  // of the head in the whole weight
  std::int64_t latent;
  std::int64_t nope;
  std::int64_t rope;
  std::int64_t value;
  DType rounded;  // q's dtype: of latents, K and V
};

struct MergeItem {
  const QueryRow* rows;  // [num_rows]
  std::int64_t num_rows;
  std::int64_t value_width;
  RowStates states;  // of the first split; the others follow, split_rows further each
  std::int64_t split_rows;
  std::int64_t num_splits;
  DType out_dtype;
};

// What the scratch of an item depends on; a worker's scratch serves the largest of its items.
struct AttentionShape {
  std::int64_t chunk;
  std::int64_t packed;
  std::int64_t num_heads;
  std::int64_t rows_per_head;
  std::int64_t key_width;
  std::int64_t value_width;
  bool is_streamed;
};

constexpr AttentionShape shape_of(const AttentionItem& item) {
  return {.chunk = item.chunk,
          .packed = item.packed,
          .num_heads = item.num_heads,
          .rows_per_head = item.rows_per_head,
          .key_width = item.key_width,
          .value_width = item.value_width,
          .is_streamed = item.is_streamed};
}

}  // namespace quire::cpu
