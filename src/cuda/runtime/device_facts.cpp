// SPDX-License-Identifier: Apache-2.0
#include "cuda/runtime/device_facts.h"

#include <cuda_runtime_api.h>

#include "cuda/runtime/status.h"

namespace quire::cuda {

int num_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // no driver is an answer, not a pending error for the next call
  return 0;
}

DeviceFacts device_facts(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return {
      .name = properties.name,
      .compute_major = properties.major,
      .compute_minor = properties.minor,
      .num_sms = properties.multiProcessorCount,
      .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem),
      .l2_bytes = properties.l2CacheSize,
      .shared_bytes_per_block = static_cast<std::int64_t>(properties.sharedMemPerBlockOptin),
  };
}

}  // namespace quire::cuda
