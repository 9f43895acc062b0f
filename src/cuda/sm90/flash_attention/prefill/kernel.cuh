// SPDX-License-Identifier: Apache-2.0
// Attention of many query rows at a time over the pages.
#pragma once

#include "cuda/common/prefill_attention/run_roles.cuh"
#include "cuda/common/prefill_attention/shared.cuh"
#include "cuda/sm90/flash_attention/prefill/launch_prefill.h"
#include "cuda/sm90/flash_attention/prefill/paged_source.cuh"

namespace quire::cuda::sm90::flash_attention {

template <typename Variant>
__global__ void __launch_bounds__(Variant::kConfig.threads(), 1)
    prefill_kernel(const __grid_constant__ PrefillParams params,
                   const __grid_constant__ PagedKeys keys) {
  run_roles<Variant::kConfig, PagedSource<Variant::kConfig>>(params, keys);
}

template <typename Variant>
void launch_prefill(const PrefillParams& params, const PagedKeys& keys,
                    const PrefillLaunch& where) {
  launch(prefill_kernel<Variant>, prefill_shape<Variant::kConfig>(where), where.stream, params,
         keys);
}

}  // namespace quire::cuda::sm90::flash_attention
