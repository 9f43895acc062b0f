// SPDX-License-Identifier: Apache-2.0
// The prefill kernel over a cache of e4m3 that it expands itself:
//
//   warp 0          load    tiles off the schedule, q, the blocks of K and V
//   warps 1 – 3     expand  blocks into the workspace, ahead of it
//   warpgroups 1 –  attend  64 query rows each: scores, softmax, sums, and the finished rows
#pragma once

#include "cuda/common/prefill_attention/run_roles.cuh"
#include "cuda/common/prefill_attention/shared.cuh"
#include "cuda/sm90/flash_attention/prefill/dequantized/dequantize_role.cuh"
#include "cuda/sm90/flash_attention/prefill/dequantized/load_dequantized.cuh"
#include "cuda/sm90/flash_attention/prefill/launch_prefill.h"

namespace quire::cuda::sm90::flash_attention {

template <PrefillConfig kConfig>
__device__ inline void dequantize_and_attend(const PrefillParams& params,
                                             const DequantizedKeys& keys) {
  static_assert(kConfig.loading_warps == 2);  // warp 0 does the work of both
  run_block<kConfig, DequantizedSource<kConfig>, PrefillAttend<kConfig>>(
      params, keys, [&](PrefillShared<kConfig>& shared) {
        if (warp_in_block() == 0) {
          LoadDequantized<kConfig>(params, keys, shared).run();
        } else {
          // All CTAs take part in what is needed first.
          const auto thread_blocks = static_cast<int>(gridDim.x);
          const int warp = static_cast<int>(blockIdx.x) + (warp_in_block() - 1) * thread_blocks;
          DequantizeRole(params, keys, warp, 3 * thread_blocks).run();
        }
      });
}

template <typename Variant>
__global__ void __launch_bounds__(Variant::kConfig.threads(), 1)
    dequantizing_kernel(const __grid_constant__ PrefillParams params,
                        const __grid_constant__ DequantizedKeys keys) {
  dequantize_and_attend<Variant::kConfig>(params, keys);
}

template <typename Variant>
void launch_dequantizing(const PrefillParams& params, const DequantizedKeys& keys,
                         const PrefillLaunch& where) {
  launch(dequantizing_kernel<Variant>, prefill_shape<Variant::kConfig>(where), where.stream, params,
         keys);
}

}  // namespace quire::cuda::sm90::flash_attention
