// SPDX-License-Identifier: Apache-2.0
// Prefix sums of the keys each sequence has: out[b] = Σ_{j<b} cache_length(j) + new tokens(j), for
// gathered buffers.
#pragma once

#include <cstdint>

#include "quire/context.h"
#include "quire/export.h"
#include "quire/paged_kv_cache.h"
#include "quire/plan.h"
#include "quire/prepared.h"

namespace quire {

struct RowOffsetsArgs {
  TensorView row_offsets;    // u32 [batch + 1], of the new tokens
  TensorView cache_lengths;  // u32 [batch]
  TensorView out;            // u32 [batch + 1]
};

struct RowOffsetsProblem {
  Device device{};
  std::int64_t batch = 0;

  bool operator==(const RowOffsetsProblem&) const = default;
};

QUIRE_API RowOffsetsProblem validate(const RowOffsetsArgs& args);
QUIRE_API Plan plan(const RowOffsetsProblem& problem, const Context& context = {});
QUIRE_API Prepared<RowOffsetsProblem> prepare(const RowOffsetsProblem& problem,
                                              const Context& context = {});
QUIRE_API Plan supports(const RowOffsetsArgs& args, const Context& context = {});
QUIRE_API void run(const Prepared<RowOffsetsProblem>& prepared, const RowOffsetsArgs& args,
                   const Context& context = {});
QUIRE_API void row_offsets(const RowOffsetsArgs& args, const Context& context = {});

}  // namespace quire
