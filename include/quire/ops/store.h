// SPDX-License-Identifier: Apache-2.0
// Writing the new tokens' rows (store) or ready-made scales (store_scales) into the cache, at
// cache_length + i, or where slots say. Rows are rounded to the cache's dtype (fp8 saturating); parts
// with scales are quantized: scale = amax / max_finite of the granule, written beside them, or the
// user's static scale. An all-zero granule gets scale 0 and zeros.
//
// K and V of a layer in one launch, wherever an engine placed them:
//   store({.x = k, .cache = {.blocks = pool}, .layer = 3, .value = v, .slots = slot_mapping});
#pragma once

#include <cstdint>
#include <optional>

#include "quire/context.h"
#include "quire/export.h"
#include "quire/ops/problem.h"
#include "quire/ops/rms_norm.h"
#include "quire/paged_kv_cache.h"
#include "quire/plan.h"
#include "quire/prepared.h"

namespace quire {

struct StoreArgs {
  TensorView
      x;  // [tokens, kv_heads, head_dim] f32, f16, bf16; or the cache's own dtype, stored as it is
  TensorView row_offsets{};  // u32 [batch + 1]; not read with slots
  PagedKVCache cache;        // with slots: blocks, scales and row format alone
  std::int64_t layer = 0;
  KvSide side = KvSide::key;  // of x
  // Given: x goes to the keys and this to the values, in one launch. As x: dtype, shape; strides of its own.
  std::optional<TensorView> value{};
  // i64 or i32 [tokens]: page · page_size + row of the page. A negative one skips its token. No two
  // tokens have the same slot: which of their rows would stay, in whole or in parts, is open. Slots past
  // the last page are refused on the host, and skipped where they are on a GPU.
  std::optional<TensorView> slots{};
};

struct StoreScalesArgs {
  TensorView scales;       // f32, f16, bf16 [tokens, kv_heads, slots]
  TensorView row_offsets;  // u32 [batch + 1]
  PagedKVCache cache;      // with scales
  std::int64_t layer = 0;
  KvSide side = KvSide::key;
};

struct StoreProblem {
  Device device{};
  RaggedSize ragged{};
  CacheShape cache{};
  KvSide side = KvSide::key;
  DType x_dtype = DType::bf16;
  bool scales_only = false;
  bool has_value = false;
  bool by_slots = false;

  bool operator==(const StoreProblem&) const = default;
};

QUIRE_API StoreProblem validate(const StoreArgs& args);
QUIRE_API StoreProblem validate(const StoreScalesArgs& args);
QUIRE_API Plan plan(const StoreProblem& problem, const Context& context = {});
QUIRE_API Prepared<StoreProblem> prepare(const StoreProblem& problem, const Context& context = {});
QUIRE_API Plan supports(const StoreArgs& args, const Context& context = {});
QUIRE_API void run(const Prepared<StoreProblem>& prepared, const StoreArgs& args,
                   const Context& context = {});
QUIRE_API Plan supports(const StoreScalesArgs& args, const Context& context = {});
QUIRE_API void run(const Prepared<StoreProblem>& prepared, const StoreScalesArgs& args,
                   const Context& context = {});
QUIRE_API void store(const StoreArgs& args, const Context& context = {});
QUIRE_API void store_scales(const StoreScalesArgs& args, const Context& context = {});

}  // namespace quire
