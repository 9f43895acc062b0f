// SPDX-License-Identifier: Apache-2.0
// Logical positions of a token's own sequence → physical rows encoded as page · page_size + row in
// page. A negative index passes through; a position past the page table or on an unassigned page
// becomes -1.
#pragma once

#include <cstdint>

#include "quire/context.h"
#include "quire/export.h"
#include "quire/ops/problem.h"
#include "quire/paged_kv_cache.h"
#include "quire/plan.h"
#include "quire/prepared.h"

namespace quire {

struct RemapSparseIndicesArgs {
  TensorView indices;      // i32 [tokens, top_k], any strides
  TensorView row_offsets;  // u32 [batch + 1]
  PagedKVCache cache;      // num_pages · page_size < 2³¹
  TensorView out;          // i32 [tokens, top_k]; may be indices itself
};

struct RemapSparseIndicesProblem {
  Device device{};
  RaggedSize ragged{};
  CacheShape cache{};
  std::int64_t top_k = 0;

  bool operator==(const RemapSparseIndicesProblem&) const = default;
};

QUIRE_API RemapSparseIndicesProblem validate(const RemapSparseIndicesArgs& args);
QUIRE_API Plan plan(const RemapSparseIndicesProblem& problem, const Context& context = {});
QUIRE_API Prepared<RemapSparseIndicesProblem> prepare(const RemapSparseIndicesProblem& problem,
                                                      const Context& context = {});
QUIRE_API Plan supports(const RemapSparseIndicesArgs& args, const Context& context = {});
QUIRE_API void run(const Prepared<RemapSparseIndicesProblem>& prepared,
                   const RemapSparseIndicesArgs& args, const Context& context = {});
QUIRE_API void remap_sparse_indices(const RemapSparseIndicesArgs& args,
                                    const Context& context = {});

}  // namespace quire
