// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/runtime/status.h"

#include "quire/error.h"

namespace quire::cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw Error(ErrorCode::runtime, "cuda", what, "successful",
              std::string(cudaGetErrorName(status)) + " (" + cudaGetErrorString(status) + ")");
}

}  // namespace quire::cuda
