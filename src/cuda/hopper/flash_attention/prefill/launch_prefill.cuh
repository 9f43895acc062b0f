// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/hopper/flash_attention/prefill/kernel.cuh"
#include "cuda/hopper/flash_attention/prefill/launch_prefill.h"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {

template <typename Variant>
void launch_prefill(const PrefillParams& params, const PagedKeys& keys,
                    const PrefillLaunch& where) {
  constexpr PrefillConfig kConfig = Variant::kConfig;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(where.blocks)),
                          .block = dim3(kConfig.threads()),
                          .shared_bytes = sizeof(PrefillShared<kConfig>)};
  launch(prefill_kernel<Variant>, shape, where.stream, params, keys);
}

}  // namespace quire::cuda::hopper
