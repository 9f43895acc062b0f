// SPDX-License-Identifier: Apache-2.0
// The index keys of the new tokens, from the projection's raw rows to the fp8 rows and scales that
// mla_indexer reads, at cache_length + i, in one pass. Row by row:
//   1. LayerNorm:  (x - mean) · rsqrt(mean((x - mean)²) + ε) · norm_weight + norm_bias
//   2. rope of the first rope_dim columns: (a, b) → (a·cos - b·sin, a·sin + b·cos) of the pairs
//      (j, j + rope_dim/2), or (2j, 2j+1) where interleaved; position = cache_length + i
//   3. Hadamard:   row · H · head_dim^-½, H[i][j] = (-1)^popcount(i & j), orthonormal
//   4. fp8_e4m3:   scale = amax / 448, exact or rounded up to a power of two as in quantize_fp8, then
//      saturate(x / scale); both are stored
// in fp32 or better with one rounding at the end. A row without a page is dropped.
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

struct StoreIndexKeysArgs {
  TensorView x;            // [tokens, head_dim] f32, f16, bf16
  TensorView row_offsets;  // u32 [batch + 1]
  PagedKVCache cache;      // K only, one head, fp8_e4m3 [.., head_dim], f32 scale per token
  std::int64_t layer = 0;
  std::optional<TensorView> norm_weight{};  // [head_dim] f32, f16, bf16; absent: no LayerNorm
  std::optional<TensorView> norm_bias{};    // [head_dim]; with norm_weight
  double epsilon = 1e-6;
  // f32, f16, bf16 [max_pos, rope_dim]: cos, sin interleaved for both kinds of pairs; absent: no
  // rope.
  std::optional<TensorView> freqs_cis{};
  bool interleaved = false;
  bool hadamard = false;  // head_dim must be a power of two
  ScaleRounding scale_rounding = ScaleRounding::power_of_two;
};

struct StoreIndexKeysProblem {
  Device device{};
  RaggedSize ragged{};
  CacheShape cache{};
  std::int64_t head_dim = 0;
  std::int64_t rope_dim = 0;  // 0: no rope
  DType x_dtype = DType::bf16;
  bool has_norm = false;
  bool interleaved = false;
  bool hadamard = false;
  ScaleRounding scale_rounding = ScaleRounding::power_of_two;

  bool operator==(const StoreIndexKeysProblem&) const = default;
};

QUIRE_API StoreIndexKeysProblem validate(const StoreIndexKeysArgs& args);
QUIRE_API Plan plan(const StoreIndexKeysProblem& problem, const Context& context = {});
QUIRE_API Prepared<StoreIndexKeysProblem> prepare(const StoreIndexKeysProblem& problem,
                                                  const Context& context = {});
QUIRE_API Plan supports(const StoreIndexKeysArgs& args, const Context& context = {});
QUIRE_API void run(const Prepared<StoreIndexKeysProblem>& prepared, const StoreIndexKeysArgs& args,
                   const Context& context = {});
QUIRE_API void store_index_keys(const StoreIndexKeysArgs& args, const Context& context = {});

}  // namespace quire
