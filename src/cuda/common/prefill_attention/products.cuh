// SPDX-License-Identifier: Apache-2.0
// The two products of a warpgroup's 64 rows with a block of keys. Asynchronous: between a fence and
// a commit.
#pragma once

#include "cuda/common/prefill_attention/shared.cuh"
#include "cuda/common/softmax/softmax.cuh"

namespace quire::cuda {

// scores = q · Kᵀ. q: the warpgroup's first row.
template <PrefillConfig kConfig>
__device__ inline void issue_scores(const std::byte* q, const std::byte* keys,
                                    float (&scores)[kConfig.block_keys / 2]) {
  using Op = Wgmma<kConfig.score_dtype(), kConfig.block_keys>;
  using Shared = PrefillShared<kConfig>;
  constexpr int kFullSwizzleColumns = kConfig.head_dim / kConfig.key_swizzle_column_width();
  // A swizzle column is a row of kRowBytes.
  constexpr int kLastSteps = kConfig.head_dim % kConfig.key_swizzle_column_width() * kRowBytes /
                             kConfig.key_swizzle_column_width() / kStepBytes;
  const std::uint64_t a = tile_descriptor(q);
  const std::uint64_t b = tile_descriptor(keys);
#pragma unroll
  for (int swizzle_column = 0; swizzle_column < kFullSwizzleColumns; ++swizzle_column) {
    multiply_rows<Op>(a + swizzle_column * (Shared::kQuerySwizzleColumnBytes >> 4),
                      b + swizzle_column * (Shared::kSwizzleColumnBytes >> 4), scores,
                      swizzle_column == 0);
  }
  if constexpr (kConfig.products ==
                Products::mixed) {  // what q's first half left (convert_queries.cuh)
    multiply_rows<Op>(a + (Shared::kQuerySwizzleColumnBytes >> 4), b, scores, false);
  }
  if constexpr (kLastSteps > 0) {
    multiply_rows<Op, kLastSteps>(a + kFullSwizzleColumns * (Shared::kQuerySwizzleColumnBytes >> 4),
                                  b + kFullSwizzleColumns * (Shared::kSwizzleColumnBytes >> 4),
                                  scores, kFullSwizzleColumns == 0);
  }
}

// sums (+)= weights · V.
template <PrefillConfig kConfig>
__device__ inline void issue_values(const std::uint32_t (&weights)[kConfig.block_keys / 4],
                                    const std::byte* values, float (&sums)[kConfig.value_dim / 2],
                                    bool starts_sum) {
  using Op = RegisterWgmma<kConfig.product_dtype(), kConfig.value_dim>;
  multiply_registers<Op>(weights,
                         transposed_descriptor(values, PrefillShared<kConfig>::kSwizzleColumnBytes),
                         sums, starts_sum);
}

// A step's two products, the scores of a block of keys and the sum over the block before it: issued
// together or alone, and awaited.

template <PrefillConfig kConfig> class StepProducts {
 public:
  using Block = float[kConfig.block_keys / 2];
  using Weights = std::uint32_t[kConfig.block_keys / 4];
  using Sums = float[kConfig.value_dim / kConfig.column_groups / 2];

  __device__ static void start_scores(const std::byte* q, const std::byte* keys, Block& scores) {
    pin(scores);
    cute::warpgroup_arrive();
    issue_scores<kConfig>(q, keys, scores);
    cute::warpgroup_commit_batch();
  }
  __device__ static void start_sum(Weights& weights, const std::byte* values, Sums& sums,
                                   bool starts_sum) {
    pin(sums);
    pin(weights);
    cute::warpgroup_arrive();
    issue_values<kConfig>(weights, values, sums, starts_sum);
    cute::warpgroup_commit_batch();
  }
  __device__ static void start_both(const std::byte* q, const std::byte* keys, Block& scores,
                                    Weights& weights, const std::byte* values, Sums& sums,
                                    bool starts_sum) {
    pin(scores);
    pin(sums);
    pin(weights);
    cute::warpgroup_arrive();
    if constexpr (kConfig.order == StepOrder::sum_first) {
      issue_values<kConfig>(weights, values, sums, starts_sum);
      cute::warpgroup_commit_batch();
    }
    issue_scores<kConfig>(q, keys, scores);
    cute::warpgroup_commit_batch();
    if constexpr (kConfig.order == StepOrder::scores_first) {
      issue_values<kConfig>(weights, values, sums, starts_sum);
      cute::warpgroup_commit_batch();
    }
  }

  // Of both.
  __device__ static void await_scores(Block& scores, Weights& weights, Sums& sums) {
    if constexpr (kConfig.order == StepOrder::scores_first) {
      cute::warpgroup_wait<1>();
    } else {
      cute::warpgroup_wait<0>();
      pin(sums);
      pin(weights);
    }
    pin(scores);
  }

  // Scores first: products with weights in registers are issued one by one as they start, so the sum
  // is nearly done when the scores' maxima are known. The assembler moves a wait up as far as it can,
  // before those, but not across a branch.
  __device__ static void keep_sums(Sums& sums, bool rises, const float (&keep)[2]) {
    constexpr bool kAwaits = kConfig.order == StepOrder::scores_first;
    if (!rises) {
      if constexpr (kAwaits) {
        asm volatile("wgmma.wait_group.sync.aligned 0; // kept" ::: "memory");
        pin(sums);
      }
    } else {
      if constexpr (kAwaits) {
        asm volatile("wgmma.wait_group.sync.aligned 0; // scaled" ::: "memory");
        pin(sums);
      }
      scale_rows(sums, keep);
    }
  }
};

}  // namespace quire::cuda
