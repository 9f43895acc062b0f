// SPDX-License-Identifier: Apache-2.0
// The index queries of the new tokens, from the projection's raw rows to the q and q_scale that
// mla_indexer takes, in one pass: rope, Hadamard and fp8 row by row as store_index_keys has them,
// without the LayerNorm, and
//   q_scale(i, h) = scale(i, h) · weights(i, h) · factor
// where scale is that of the row's codes.
#pragma once

#include <cstdint>
#include <optional>

#include "quire/context.h"
#include "quire/export.h"
#include "quire/ops/problem.h"
#include "quire/ops/quantize_fp8.h"
#include "quire/paged_kv_cache.h"
#include "quire/plan.h"
#include "quire/prepared.h"

namespace quire {

struct QuantizeIndexQueriesArgs {
  TensorView q;            // [tokens, heads, head_dim] f32, f16, bf16
  TensorView row_offsets;  // u32 [batch + 1]
  PagedKVCache cache;      // for the positions: cache_length + i
  // The gate of each head, f32, f16, bf16 [tokens, heads], any strides; absent: 1.
  std::optional<TensorView> weights{};
  double factor = 1.0;  // softmax scale · heads^-½, say
  std::optional<TensorView> freqs_cis{};
  bool interleaved = false;
  bool hadamard = false;
  ScaleRounding scale_rounding = ScaleRounding::power_of_two;
  TensorView out;      // fp8_e4m3 [tokens, heads, head_dim]
  TensorView q_scale;  // f32 [tokens, heads]
};

struct QuantizeIndexQueriesProblem {
  Device device{};
  RaggedSize ragged{};
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t rope_dim = 0;  // 0: no rope
  DType q_dtype = DType::bf16;
  bool interleaved = false;
  bool hadamard = false;
  ScaleRounding scale_rounding = ScaleRounding::power_of_two;

  bool operator==(const QuantizeIndexQueriesProblem&) const = default;
};

QUIRE_API QuantizeIndexQueriesProblem validate(const QuantizeIndexQueriesArgs& args);
QUIRE_API Plan plan(const QuantizeIndexQueriesProblem& problem, const Context& context = {});
QUIRE_API Prepared<QuantizeIndexQueriesProblem> prepare(const QuantizeIndexQueriesProblem& problem,
                                                        const Context& context = {});
QUIRE_API Plan supports(const QuantizeIndexQueriesArgs& args, const Context& context = {});
QUIRE_API void run(const Prepared<QuantizeIndexQueriesProblem>& prepared,
                   const QuantizeIndexQueriesArgs& args, const Context& context = {});
QUIRE_API void quantize_index_queries(const QuantizeIndexQueriesArgs& args,
                                      const Context& context = {});

}  // namespace quire
