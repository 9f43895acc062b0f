// SPDX-License-Identifier: Apache-2.0
// The blocks of keys that block-sparse attention reads: for each new token and head, the max_blocks best blocks of
// its own sequence.
//   score(i, h, t) = q(i, h) · k(t)
//   score(i, h, b) = max over the keys t of block b that the mask shows, b = t / block_size
// The first `first_blocks` blocks of the sequence and the last `local_blocks` up to that of the token's own position come
// before all others. The new tokens' keys must be in the cache. Exact and deterministic: equal scores go to the lower block.
// A key whose score is NaN counts as one of -inf; keys without a page, and blocks without keys, do not count. A row of
// out holds min(max_blocks, blocks that the token sees keys of) ids in ascending order, then -1 to its end: what
// flash_attention takes as key_blocks, where heads are its KV heads.
#pragma once

#include <cstdint>

#include "quire/context.h"
#include "quire/export.h"
#include "quire/mask.h"
#include "quire/ops/problem.h"
#include "quire/paged_kv_cache.h"
#include "quire/plan.h"
#include "quire/prepared.h"

namespace quire {

struct SelectBlocksArgs {
  TensorView q;            // [tokens, heads, head_dim] f32, f16, bf16
  TensorView row_offsets;  // u32 [batch + 1]
  // Its keys; V, where there is one, is not read. Heads of q share those of the cache as in attention.
  PagedKVCache cache{};
  std::int64_t layer = 0;
  std::int64_t block_size = 128;
  std::int64_t first_blocks = 0;
  std::int64_t local_blocks = 1;
  Mask mask{};     // causal or full
  TensorView out;  // i32 [tokens, heads, max_blocks], max_blocks ≥ first_blocks + local_blocks
};

struct SelectBlocksProblem {
  Device device{};
  RaggedSize ragged{};
  CacheShape cache{};
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  DType q_dtype = DType::bf16;
  std::int64_t block_size = 0;
  std::int64_t max_blocks = 0;
  std::int64_t first_blocks = 0;
  std::int64_t local_blocks = 0;
  MaskSummary mask{};
  std::int64_t alignment = 1;  // bytes, of every row of q and the cache

  bool operator==(const SelectBlocksProblem&) const = default;
};

QUIRE_API SelectBlocksProblem validate(const SelectBlocksArgs& args);
QUIRE_API Plan plan(const SelectBlocksProblem& problem, const Context& context = {});
QUIRE_API Prepared<SelectBlocksProblem> prepare(const SelectBlocksProblem& problem,
                                                const Context& context = {});
QUIRE_API Plan supports(const SelectBlocksArgs& args, const Context& context = {});
QUIRE_API void run(const Prepared<SelectBlocksProblem>& prepared, const SelectBlocksArgs& args,
                   const Context& context = {});
QUIRE_API void select_blocks(const SelectBlocksArgs& args, const Context& context = {});

}  // namespace quire
