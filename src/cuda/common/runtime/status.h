// SPDX-License-Identifier: Apache-2.0
// No CUDA status is dropped: every call goes through check().
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace quire::cuda {

// Throws Error (runtime) that names the call, `what`, and CUDA's own words.
void check(cudaError_t status, const char* what);

}  // namespace quire::cuda
