// SPDX-License-Identifier: Apache-2.0
// No CUDA status is dropped: every call goes through check().
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "quire/error.h"

namespace quire::cuda {

// Throws Error (runtime) that names the call, `what`, and CUDA's own words.
inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw Error(ErrorCode::runtime, "cuda", what, "successful",
              std::string(cudaGetErrorName(status)) + " (" + cudaGetErrorString(status) + ")");
}

}  // namespace quire::cuda
