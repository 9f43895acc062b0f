// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/flash_attention/prefill/workspace.h"

#include "cuda/hopper/flash_attention/prefill/narrow/flip_values.h"
#include "cuda/runtime/carver.h"

namespace quire::cuda::hopper {

int flipped_blocks(const FlashAttentionProblem& problem, const PrefillPlan& plan) {
  const std::int64_t keys = plan.columns * problem.cache.page_size;
  return static_cast<int>((keys + kFlippedKeys - 1) / kFlippedKeys);
}

PrefillWorkspace::PrefillWorkspace(const FlashAttentionProblem& problem, const PrefillPlan& plan,
                                   void* base) {
  Carver carver(base);
  next_tile = carver.take<int>(1);
  const std::int64_t pages = problem.ragged.batch * plan.columns;
  const std::int64_t rows = pages * problem.cache.num_kv_heads * problem.cache.page_size;
  if (plan.path == PrefillPath::expanded) {
    keys = carver.take<std::byte>(rows * bytes_for(problem.q_dtype, problem.head_dim));
    values = carver.take<std::byte>(rows * bytes_for(problem.q_dtype, problem.value_dim));
    table = carver.take<std::uint32_t>(pages);
  } else if (plan.path == PrefillPath::narrow) {
    flipped = carver.take<std::byte>(problem.ragged.batch * flipped_blocks(problem, plan) *
                                     problem.cache.num_kv_heads * kFlippedKeys * kFlippedColumns);
  }
  bytes = carver.bytes();
}

}  // namespace quire::cuda::hopper
