// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/flash_attention/prefill/plan_prefill.h"

#include "cuda/common/prefill_attention/fp8/transpose_values.h"
#include "cuda/common/runtime/carver.h"
#include "cuda/sm90/flash_attention/prefill/launch_prefill.h"

namespace quire::cuda::sm90::flash_attention {
namespace {

// In thousandths, of the multiprocessors that come last. Of 132 that begin together most end within
// 1 %, some 3 % after them, but not in all shapes: with 10 here 2048 tokens over 32 768 keys took
// 0.6 % less, 4 · 512 over 8704 of 64 heads 0.7 % more.
constexpr int kSlowness = 5;

}  // namespace

int transposed_blocks(const FlashAttentionProblem& problem, const PrefillPlan& plan) {
  const std::int64_t keys = plan.columns * problem.cache.page_size;
  return static_cast<int>((keys + kTransposedKeys - 1) / kTransposedKeys);
}

int dequantized_blocks(const FlashAttentionProblem& problem, const PrefillPlan& plan) {
  const std::int64_t keys = plan.columns * problem.cache.page_size;
  return static_cast<int>((keys + kDequantizedKeys - 1) / kDequantizedKeys);
}

PrefillWorkspace::PrefillWorkspace(const FlashAttentionProblem& problem, const PrefillPlan& plan,
                                   void* base) {
  Carver carver(base);
  const PrefillConfig& config = plan.variant->config;
  const std::int64_t pieces = plan.cuts_tail ? 2 * std::int64_t{plan.blocks} * config.consumers : 0;
  // K and V.
  const std::int64_t blocks = plan.path == PrefillPath::dequantizing
                                  ? 2 * problem.ragged.batch * problem.cache.num_kv_heads *
                                        dequantized_blocks(problem, plan)
                                  : 0;
  // Counters of launch_prefill.h.
  const std::int64_t heads =
      plan.path == PrefillPath::fp8 ? problem.ragged.batch * problem.cache.num_kv_heads + 1 : 0;
  const std::int64_t zeros = 1 + pieces + blocks + heads;
  next_tile = carver.take<int>(zeros);
  zero_bytes = zeros * std::int64_t{sizeof(int)};
  states = reinterpret_cast<std::uint32_t*>(next_tile + 1 + pieces);
  if (blocks > 0) {
    rows = carver.take<std::byte>(blocks * kDequantizedKeys *
                                  bytes_for(problem.q_dtype, problem.head_dim));
  }
  if (plan.cuts_tail) {
    const std::int64_t piece_threads = pieces * 128;
    tail = {.sums = carver.take<float>(piece_threads * config.value_dim / 2),
            .rows = carver.take<float4>(piece_threads),
            .arrivals = next_tile + 1,
            .slowness = kSlowness};
  }
  const std::int64_t pages = problem.ragged.batch * plan.columns;
  const std::int64_t page_rows = pages * problem.cache.num_kv_heads * problem.cache.page_size;
  if (plan.path == PrefillPath::dequantized) {
    keys = carver.take<std::byte>(page_rows * bytes_for(problem.q_dtype, problem.head_dim));
    values = carver.take<std::byte>(page_rows * bytes_for(problem.q_dtype, problem.value_dim));
    table = carver.take<std::uint32_t>(pages);
  } else if (plan.path == PrefillPath::fp8) {
    transposed =
        carver.take<std::byte>(problem.ragged.batch * transposed_blocks(problem, plan) *
                               problem.cache.num_kv_heads * kTransposedKeys * kTransposedColumns);
  }
  bytes = carver.bytes();
}

}  // namespace quire::cuda::sm90::flash_attention
