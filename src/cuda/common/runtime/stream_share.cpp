// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/runtime/stream_share.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#include <algorithm>

#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/driver_function.h"

namespace quire::cuda {
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
