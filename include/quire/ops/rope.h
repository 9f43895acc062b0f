// SPDX-License-Identifier: Apache-2.0
// Rotary embedding of the new tokens: q into `out`, the cached keys in place. Position =
// cache_length + i, or position_ids.
//   (a, b) → (a·cos - b·sin, a·sin + b·cos), computed in fp32 or better, one rounding
// Interleaved pairs are (2j, 2j+1) of the last rope_dim columns; half-split pairs are (j, j +
// rope_dim/2) of the first rope_dim columns. The other columns of q are copied, those of K are left
// alone. With a gamma the row is normalised first, in the same pass and under the same rounding:
//   x → x · rsqrt(mean(x²) + ε) · (gamma + weight_offset)
// per head, over the first len(gamma) columns, as rms_norm_key has it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "quire/context.h"
#include "quire/export.h"
#include "quire/ops/problem.h"
#include "quire/paged_kv_cache.h"
#include "quire/plan.h"
#include "quire/prepared.h"

namespace quire {

struct RopeArgs {
  TensorView q;            // [tokens, heads, head_dim] f32, f16, bf16
  TensorView row_offsets;  // u32 [batch + 1]
  PagedKVCache cache;
  std::int64_t layer = 0;
  // f32, f16, bf16 [max_pos, rope_dim]: cos, sin interleaved for both kinds of pairs.
  TensorView freqs_cis;
  bool interleaved = false;
  bool inverse = false;  // (a, b) → (a·cos + b·sin, b·cos - a·sin): takes a rotation back
  // Rows of freqs_cis instead of the cache positions: u32 [sections, tokens]; section s serves the
  // pairs [mrope_sections[0] + … + mrope_sections[s-1], …) (multimodal rope), pairs past the last
  // section use section 0.
  std::optional<TensorView> position_ids{};
  std::vector<std::int64_t> mrope_sections{};
  bool rotate_key = true;               // false: only q
  std::optional<TensorView> q_gamma{};  // [columns ≤ q's head_dim] f32, f16, bf16; absent: no norm
  std::optional<TensorView> key_gamma{};  // [columns ≤ the cache's head_dim]; with rotate_key
  double epsilon = 1e-6;
  double weight_offset = 0.0;
  TensorView out;  // [tokens, heads, head_dim]; may be q itself
};

struct RopeProblem {
  Device device{};
  RaggedSize ragged{};
  CacheShape cache{};
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t rope_dim = 0;
  DType q_dtype = DType::bf16;
  DType freqs_dtype = DType::f32;
  bool interleaved = false;
  bool inverse = false;
  bool has_position_ids = false;
  std::int64_t q_norm_columns = 0;  // 0: no norm
  std::int64_t key_norm_columns = 0;

  bool operator==(const RopeProblem&) const = default;
};

QUIRE_API RopeProblem validate(const RopeArgs& args);
QUIRE_API Plan plan(const RopeProblem& problem, const Context& context = {});
QUIRE_API Prepared<RopeProblem> prepare(const RopeProblem& problem, const Context& context = {});
QUIRE_API Plan supports(const RopeArgs& args, const Context& context = {});
QUIRE_API void run(const Prepared<RopeProblem>& prepared, const RopeArgs& args,
                   const Context& context = {});
QUIRE_API void rope(const RopeArgs& args, const Context& context = {});

}  // namespace quire
