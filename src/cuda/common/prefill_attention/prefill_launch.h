// SPDX-License-Identifier: Apache-2.0
// How a prefill kernel is launched, whatever its keys come from.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/common/prefill_attention/params.h"

namespace quire::cuda {

struct PrefillLaunch {
  int blocks = 0;
  cudaStream_t stream = nullptr;
};

}  // namespace quire::cuda
