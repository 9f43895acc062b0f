// SPDX-License-Identifier: Apache-2.0
// Whole pages of the cache copied onto others: K and V of all layers, and the scales that stand
// beside them. For sequences that share a prefix until one of them writes (copy-on-write).
//   blocks[target] = blocks[source] for every pair
// The pairs are one step, not a sequence of steps: no page is a target twice, and no target is a
// source. A pair with an id of "no page" on either side is dropped, so a recorded call can be
// padded.
#pragma once

#include <cstdint>

#include "quire/context.h"
#include "quire/export.h"
#include "quire/ops/problem.h"
#include "quire/paged_kv_cache.h"
#include "quire/plan.h"
#include "quire/prepared.h"

namespace quire {

struct CopyPagesArgs {
  PagedKVCache cache;  // without scales_page_table: those scales have pages of their own
  TensorView pairs;    // u32 [count, 2]: source, target
};

struct CopyPagesProblem {
  Device device{};
  CacheShape cache{};
  std::int64_t count = 0;

  bool operator==(const CopyPagesProblem&) const = default;
};

QUIRE_API CopyPagesProblem validate(const CopyPagesArgs& args);
QUIRE_API Plan plan(const CopyPagesProblem& problem, const Context& context = {});
QUIRE_API Prepared<CopyPagesProblem> prepare(const CopyPagesProblem& problem,
                                             const Context& context = {});
QUIRE_API Plan supports(const CopyPagesArgs& args, const Context& context = {});
QUIRE_API void run(const Prepared<CopyPagesProblem>& prepared, const CopyPagesArgs& args,
                   const Context& context = {});
QUIRE_API void copy_pages(const CopyPagesArgs& args, const Context& context = {});

}  // namespace quire
