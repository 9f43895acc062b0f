// SPDX-License-Identifier: Apache-2.0
// How a tile kernel is launched, whatever it multiplies.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/common/matmul/params.h"

namespace quire::cuda {

struct TileLaunch {
  int blocks = 0;  // a multiple of the cluster
  cudaStream_t stream = nullptr;
};

}  // namespace quire::cuda
