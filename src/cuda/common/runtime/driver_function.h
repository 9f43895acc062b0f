// SPDX-License-Identifier: Apache-2.0
// Functions of the driver, found at run time and never linked: a program with this backend must start
// where there is no driver.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/common/runtime/status.h"

namespace quire::cuda {

// As of CUDA `version` (12040: 12.4); null where the driver is older.
template <typename Function> Function driver_function(const char* name, unsigned version) {
  void* symbol = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  check(cudaGetDriverEntryPointByVersion(name, &symbol, version, cudaEnableDefault, &found),
        "cudaGetDriverEntryPointByVersion");
  return found == cudaDriverEntryPointSuccess ? reinterpret_cast<Function>(symbol) : nullptr;
}

}  // namespace quire::cuda
