// SPDX-License-Identifier: Apache-2.0
// The lightning indexer of DeepSeek-V3.2: for each new token, the top_k positions of its own
// sequence.
//   score(i, t) = k_scale(t) · Σ_h max(0, q(i, h) · k(t)) · q_scale(i, h)
// The new tokens' keys must be in the cache. Exact and deterministic: ties go to the lowest
// position. The row of a token that sees `bound` keys holds exactly min(top_k, bound) positions in
// ascending order, then -1 to its end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "quire/context.h"
#include "quire/export.h"
#include "quire/mask.h"
#include "quire/ops/problem.h"
#include "quire/paged_kv_cache.h"
#include "quire/plan.h"
#include "quire/prepared.h"

namespace quire {

struct MlaIndexerArgs {
  TensorView q;            // fp8_e4m3 [tokens, heads, head_dim]
  TensorView q_scale;      // f32 [tokens, heads]; may be negative
  TensorView row_offsets;  // u32 [batch + 1]
  PagedKVCache cache;      // K only, one head, fp8_e4m3 [.., head_dim], f32 scale per token
  std::int64_t layer = 0;
  std::int64_t top_k = 2048;
  Mask mask{};     // causal or full
  TensorView out;  // i32 [tokens, top_k]
  // f32 [tokens, top_k]: the scores of the positions in out, -inf where there is none. For ranks that hold parts of a
  // sequence and choose among each other's best. On Hopper the chosen keys are scored a second time for it, in fp32.
  std::optional<TensorView> scores{};
  // A token's scores are the same bits, and so its positions are the same, in any batch.
  bool batch_invariant = false;
  // Tokens that a key stands for, as compress_keys writes them: lengths count tokens, positions in out are
  // keys. A sequence of n tokens has n / tokens_per_key of them; causal, the token at position p sees those
  // below (p + 1) / tokens_per_key.
  std::int64_t tokens_per_key = 1;
};

struct MlaIndexerProblem {
  Device device{};
  RaggedSize ragged{};
  CacheShape cache{};
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t top_k = 0;
  MaskSummary mask{};
  bool batch_invariant = false;
  bool wants_scores = false;
  std::int64_t tokens_per_key = 1;
  std::int64_t alignment = 1;     // bytes, of every row of q and the cache
  bool has_dense_scales = false;  // one after another in a page, pages on multiples of 16 bytes

  bool operator==(const MlaIndexerProblem&) const = default;
};

QUIRE_API MlaIndexerProblem validate(const MlaIndexerArgs& args);
QUIRE_API Plan plan(const MlaIndexerProblem& problem, const Context& context = {});
QUIRE_API Prepared<MlaIndexerProblem> prepare(const MlaIndexerProblem& problem,
                                              const Context& context = {});
QUIRE_API Plan supports(const MlaIndexerArgs& args, const Context& context = {});
QUIRE_API void run(const Prepared<MlaIndexerProblem>& prepared, const MlaIndexerArgs& args,
                   const Context& context = {});
QUIRE_API void mla_indexer(const MlaIndexerArgs& args, const Context& context = {});

}  // namespace quire
