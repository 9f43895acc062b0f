// SPDX-License-Identifier: Apache-2.0
// The prefill kernel with products of e4m3 that transposes V itself, whatever its keys come from, and
// its launch over the pages.
#pragma once

#include "cuda/common/prefill_attention/fp8/run_fp8.cuh"
#include "cuda/common/prefill_attention/fp8/transposing_kernel.cuh"
#include "cuda/common/prefill_attention/prefill_shape.cuh"
#include "cuda/sm90/flash_attention/prefill/fp8/launch_transposing.h"
#include "cuda/sm90/flash_attention/prefill/paged_source.cuh"

namespace quire::cuda::sm90::flash_attention {

template <typename Variant>
void launch_transposing(const PrefillParams& params, const PagedKeys& keys,
                        const PrefillLaunch& where) {
  using Source = PagedSource<Variant::kConfig>;
  launch(transposing_kernel<Variant, Source>, prefill_shape<Variant::kConfig>(where), where.stream,
         params, keys);
}

}  // namespace quire::cuda::sm90::flash_attention
