// SPDX-License-Identifier: Apache-2.0
// The border between host code and one compiled kernel: variants/*.cu instantiate it.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/hopper/flash_attention/prefill/params.h"

namespace quire::cuda::hopper {

struct PrefillLaunch {
  int blocks = 0;
  cudaStream_t stream = nullptr;
};

template <typename Variant>
void launch_prefill(const PrefillParams& params, const PagedKeys& keys,
                    const PrefillLaunch& launch);

}  // namespace quire::cuda::hopper
