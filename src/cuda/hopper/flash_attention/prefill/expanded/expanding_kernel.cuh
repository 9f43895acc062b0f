// SPDX-License-Identifier: Apache-2.0
// The prefill kernel over a cache of e4m3 that it expands itself:
//
//   warp 0          load    tiles off the schedule, q, the blocks of K
//   warp 2          load    the blocks of V
//   warps 1, 3      expand  blocks into the workspace, ahead of those
//   warpgroups 1 –  attend  64 query rows each: scores, softmax, sums, and the finished rows
#pragma once

#include "cuda/hopper/flash_attention/prefill/expanded/expand_role.cuh"
#include "cuda/hopper/flash_attention/prefill/expanded/expanded_source.cuh"
#include "cuda/hopper/flash_attention/prefill/run_roles.cuh"

namespace quire::cuda::hopper {

template <PrefillConfig kConfig>
__device__ inline void expand_and_attend(const PrefillParams& params, const ExpandedKeys& keys) {
  static_assert(kConfig.loading_warps == 2);
  using Source = ExpandedSource<kConfig>;
  run_block<kConfig, Source, PrefillAttend<kConfig>>(
      params, keys, [&](PrefillShared<kConfig>& shared) {
        const int warp = warp_in_block();
        if (warp % 2 == 1) {
          // All thread blocks take part in what is needed first.
          const auto thread_blocks = static_cast<int>(gridDim.x);
          const int index = static_cast<int>(blockIdx.x) + warp / 2 * thread_blocks;
          ExpandRole(params, keys, index, 2 * thread_blocks).run();
          return;
        }
        PrefillLoad<kConfig, Source> load(params, keys, shared, 0);
        if (warp == 0) {
          load.lead();
        } else {
          load.load_values();
        }
      });
}

template <typename Variant>
__global__ void __launch_bounds__(Variant::kConfig.threads(), 1)
    expanding_kernel(const __grid_constant__ PrefillParams params,
                     const __grid_constant__ ExpandedKeys keys) {
  expand_and_attend<Variant::kConfig>(params, keys);
}

}  // namespace quire::cuda::hopper
