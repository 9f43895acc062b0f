// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/runtime/device_facts.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/common/runtime/driver_function.h"
#include "cuda/common/runtime/status.h"

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

int num_sms(int device) {
  int count = 0;
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute");
  return count;
}

std::string driver_version() {
  int version = 0;
  check(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
  if (version == 0) return "";
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string refuse_hopper(Device device) {
  if (device.kind != DeviceKind::cuda) return "tensors are on " + to_string(device);
  if (num_devices() == 0) return "no NVIDIA GPU of compute capability 9.0 on this machine";
  if (device.index >= num_devices()) return "there is no " + to_string(device);
  int major = 0;
  int minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index),
        "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.index),
        "cudaDeviceGetAttribute");
  if (major == 9 && minor == 0) return "";
  return to_string(device) + " has compute capability " + std::to_string(major) + "." +
         std::to_string(minor) + ", not 9.0";
}

namespace {

constexpr int kMaxCluster = 16;  // of a Hopper device, where a kernel allows it

}  // namespace

StreamShare share_of(void* stream, int device) {
  static const auto context_of = driver_function<PFN_cuStreamGetCtx_v9020>("cuStreamGetCtx", 9020);
  static const auto resource_of =
      driver_function<PFN_cuCtxGetDevResource_v12040>("cuCtxGetDevResource", 12040);
  const StreamShare all{.num_sms = num_sms(device), .max_cluster = kMaxCluster};
  if (context_of == nullptr || resource_of == nullptr) return all;  // no green contexts either
  CUcontext context = nullptr;
  CUdevResource resource{};
  if (context_of(static_cast<CUstream>(stream), &context) != CUDA_SUCCESS ||
      resource_of(context, &resource, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS) {
    return all;
  }
  const auto sms = static_cast<int>(resource.sm.smCount);
  if (sms >= all.num_sms) return all;
  const auto together = static_cast<int>(resource.sm.smCoscheduledAlignment);
  return {.num_sms = sms, .max_cluster = std::clamp(together, 1, kMaxCluster)};
}

}  // namespace quire::cuda
