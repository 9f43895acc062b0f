// SPDX-License-Identifier: Apache-2.0
// A stream whose work runs on some of GPU 0's SMs only: that of a green context.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include <stdexcept>
#include <string>

#include "cuda/common/runtime/driver_function.h"

namespace quire::test {

class GreenStream {
 public:
  // Of at least `sms`; the driver rounds up.
  explicit GreenStream(unsigned sms) {
    CUdevResource all{};
    ask(call<PFN_cuDeviceGetDevResource_v12040>("cuDeviceGetDevResource", 12040)(
        0, &all, CU_DEV_RESOURCE_TYPE_SM));
    CUdevResource part{};
    unsigned parts = 1;
    ask(call<PFN_cuDevSmResourceSplitByCount_v12040>("cuDevSmResourceSplitByCount", 12040)(
        &part, &parts, &all, nullptr, 0, sms));
    num_sms_ = static_cast<int>(part.sm.smCount);
    CUdevResourceDesc description = nullptr;
    ask(call<PFN_cuDevResourceGenerateDesc_v12040>("cuDevResourceGenerateDesc", 12040)(&description,
                                                                                       &part, 1));
    ask(call<PFN_cuGreenCtxCreate_v12040>("cuGreenCtxCreate", 12040)(&context_, description, 0,
                                                                     CU_GREEN_CTX_DEFAULT_STREAM));
    ask(call<PFN_cuGreenCtxStreamCreate_v12050>("cuGreenCtxStreamCreate", 12050)(
        &stream_, context_, CU_STREAM_NON_BLOCKING, 0));
  }
  ~GreenStream() {
    static_cast<void>(cudaStreamDestroy(stream_));
    static_cast<void>(call<PFN_cuGreenCtxDestroy_v12040>("cuGreenCtxDestroy", 12040)(context_));
  }
  GreenStream(const GreenStream&) = delete;
  GreenStream& operator=(const GreenStream&) = delete;

  cudaStream_t get() const { return stream_; }
  int num_sms() const { return num_sms_; }
  void wait() const { cuda::check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  template <typename Function> static Function call(const char* name, unsigned version) {
    const auto function = cuda::driver_function<Function>(name, version);
    if (function == nullptr) throw std::runtime_error(std::string("no ") + name);
    return function;
  }
  static void ask(CUresult status) {
    if (status != CUDA_SUCCESS) throw std::runtime_error("CUresult " + std::to_string(status));
  }

  CUgreenCtx context_ = nullptr;
  CUstream stream_ = nullptr;
  int num_sms_ = 0;
};

}  // namespace quire::test
