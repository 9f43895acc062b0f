// SPDX-License-Identifier: Apache-2.0
// The prefill kernel with products of e4m3 over V that is transposed in the workspace:
//
//   warps 0, 1      load    tiles off the schedule, q, the blocks of K
//   warp 2          load    the blocks of V, transposed
//   warp 3          flip    V of heads that come later
//   warpgroups 1 –  attend  64 query rows each
#pragma once

#include "cuda/common/prefill_attention/fp8/attend_fp8.cuh"
#include "cuda/common/prefill_attention/fp8/run_fp8.cuh"
#include "cuda/common/prefill_attention/run_roles.cuh"
#include "cuda/common/prefill_attention/shared.cuh"
#include "cuda/sm90/flash_attention/prefill/fp8/transpose_ahead.cuh"
#include "cuda/sm90/flash_attention/prefill/launch_prefill.h"
#include "cuda/sm90/flash_attention/prefill/paged_source.cuh"

namespace quire::cuda::sm90::flash_attention {

template <PrefillConfig kConfig>
__device__ inline void transpose_and_attend(const PrefillParams& params,
                                            const TransposedKeys& keys) {
  using Source = PagedSource<kConfig>;
  run_block<kConfig, Source, Fp8Attend<kConfig, Transpose::before>>(
      params, keys.pages, [&](PrefillShared<kConfig>& shared) {
        if (warp_in_block() == 3) {
          const bool has_all = keys.before.has(params.batch - 1, keys.kv_heads - 1);
          if (!has_all) TransposeAhead<kConfig>(params, keys).run();
        } else if (warp_in_block() == 2) {
          TransposedLoad<kConfig>(params, keys, shared).run();
        } else {
          PrefillLoad<kConfig, Source> load(params, keys.pages, shared, warp_in_block());
          if (warp_in_block() == 0) {
            load.lead();
          } else {
            load.load_keys();
          }
        }
      });
}

template <typename Variant>
__global__ void __launch_bounds__(Variant::kConfig.threads(), 1)
    fp8_kernel(const __grid_constant__ PrefillParams params,
               const __grid_constant__ TransposedKeys keys) {
  transpose_and_attend<Variant::kConfig>(params, keys);
}

template <typename Variant>
void launch_fp8(const PrefillParams& params, const TransposedKeys& keys,
                const PrefillLaunch& where) {
  LaunchShape shape = prefill_shape<Variant::kConfig>(where);
  shape.overlaps_previous = true;  // that one transposes V of the first heads
  launch(fp8_kernel<Variant>, shape, where.stream, params, keys);
}

// The prefill kernel with products of e4m3 that transposes V itself, whatever its keys come from, and
// its launch over the pages.

template <typename Variant>
void launch_transposing(const PrefillParams& params, const PagedKeys& keys,
                        const PrefillLaunch& where) {
  using Source = PagedSource<Variant::kConfig>;
  launch(transposing_kernel<Variant, Source>, prefill_shape<Variant::kConfig>(where), where.stream,
         params, keys);
}

}  // namespace quire::cuda::sm90::flash_attention
