// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/hopper/flash_attention/prefill/expanded/expanding_kernel.cuh"
#include "cuda/hopper/flash_attention/prefill/expanded/launch_expanding.h"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {

template <typename Variant>
void launch_expanding(const PrefillParams& params, const ExpandedKeys& keys,
                      const PrefillLaunch& where) {
  constexpr PrefillConfig kConfig = Variant::kConfig;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(where.blocks)),
                          .block = dim3(kConfig.threads()),
                          .shared_bytes = sizeof(PrefillShared<kConfig>)};
  launch(expanding_kernel<Variant>, shape, where.stream, params, keys);
}

}  // namespace quire::cuda::hopper
