// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/runtime/device_facts.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>

#include "cuda/common/runtime/driver_function.h"
#include "cuda/common/runtime/status.h"

namespace quire::cuda {
namespace {

#if defined(QUIRE_CUDA_ANY_PTX_ONLY)
constexpr bool kHasSm90Code = false;
#else
constexpr bool kHasSm90Code = true;
#endif
constexpr ComputeCapability kOldest{.major = 8, .minor = 0};
constexpr ComputeCapability kHopper{.major = 9, .minor = 0};

struct Pretended {
  std::mutex mutex;
  std::map<int, DeviceFacts> devices;
  std::atomic<bool> has_devices = false;
};

Pretended& pretended() {
  static Pretended all;
  return all;
}

std::optional<DeviceFacts> pretended_facts(int device) {
  Pretended& all = pretended();
  if (!all.has_devices) return std::nullopt;
  const std::lock_guard lock(all.mutex);
  const auto found = all.devices.find(device);
  return found == all.devices.end() ? std::nullopt : std::optional(found->second);
}

int attribute(cudaDeviceAttr name, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, name, device), "cudaDeviceGetAttribute");
  return value;
}

int driver_cuda() {
  int version = 0;
  check(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
  return version;
}

// 13000: "13.0".
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string text(ComputeCapability capability) {
  return std::to_string(capability.major) + "." + std::to_string(capability.minor);
}

// `wanted`: a compute capability in words.
std::string refuse_missing(Device device, const std::string& wanted) {
  if (device.kind != DeviceKind::cuda) return "tensors are on " + to_string(device);
  if (pretended_facts(device.index)) return "";
  if (num_devices() == 0)
    return "no NVIDIA GPU of compute capability " + wanted + " on this machine";
  return device.index < num_devices() ? "" : "there is no " + to_string(device);
}

std::string refuse_found(Device device, ComputeCapability found, const std::string& wanted) {
  return to_string(device) + " has compute capability " + text(found) + ", not " + wanted;
}

}  // namespace

PretendedDevice::PretendedDevice(int device, const DeviceFacts& facts) : device_(device) {
  const std::lock_guard lock(pretended().mutex);
  pretended().devices[device] = facts;
  pretended().has_devices = true;
}

PretendedDevice::~PretendedDevice() {
  const std::lock_guard lock(pretended().mutex);
  pretended().devices.erase(device_);
  pretended().has_devices = !pretended().devices.empty();
}

int num_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // no driver is an answer, not a pending error for the next call
  return 0;
}

DeviceFacts device_facts(int device) {
  if (const auto facts = pretended_facts(device)) return *facts;
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
      .driver_cuda = driver_cuda(),
  };
}

int num_sms(int device) {
  if (const auto facts = pretended_facts(device)) return facts->num_sms;
  return attribute(cudaDevAttrMultiProcessorCount, device);
}

ComputeCapability compute_capability(int device) {
  if (const auto facts = pretended_facts(device)) {
    return {.major = facts->compute_major, .minor = facts->compute_minor};
  }
  return {.major = attribute(cudaDevAttrComputeCapabilityMajor, device),
          .minor = attribute(cudaDevAttrComputeCapabilityMinor, device)};
}

std::string driver_version() {
  const int version = driver_cuda();
  return version == 0 ? "" : version_text(version);
}

bool runs_sm90(ComputeCapability found) {
  return kHasSm90Code && found == kHopper;
}

std::string refuse_unless_sm80(Device device) {
  const std::string wanted = text(kOldest) + " or newer";
  std::string reason = refuse_missing(device, wanted);
  if (!reason.empty()) return reason;
  const ComputeCapability found = compute_capability(device.index);
  if (found < kOldest) return refuse_found(device, found, wanted);
  if (runs_sm90(found)) return "";
  // The driver compiles the PTX of this build, if it knows PTX that new.
  const auto facts = pretended_facts(device.index);
  const int driver = facts ? facts->driver_cuda : driver_cuda();
  if (driver >= CUDART_VERSION) return "";
  return "the driver of " + to_string(device) + " runs CUDA " + version_text(driver) + ", not " +
         version_text(CUDART_VERSION) + " or newer";
}

std::string refuse_unless_sm90(Device device) {
  std::string reason = refuse_missing(device, text(kHopper));
  if (!reason.empty()) return reason;
  if (!kHasSm90Code) return "this build has no code for sm_90 (QUIRE_CUDA_ANY_PTX_ONLY)";
  const ComputeCapability found = compute_capability(device.index);
  return runs_sm90(found) ? "" : refuse_found(device, found, text(kHopper));
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
