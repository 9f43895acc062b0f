// SPDX-License-Identifier: Apache-2.0
// A step's two products, the scores of a block of keys and the sum over the block before it: issued
// together or alone, and awaited.
#pragma once

#include "cuda/common/prefill_attention/products.cuh"
#include "cuda/common/softmax/softmax.cuh"

namespace quire::cuda {

template <PrefillConfig kConfig> class StepProducts {
 public:
  using Block = float[kConfig.block_keys / 2];
  using Weights = std::uint32_t[kConfig.block_keys / 4];
  using Sums = float[kConfig.value_dim / 2];

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
