// SPDX-License-Identifier: Apache-2.0
// The device of an op's tensors is the current one while its kernels start, and the caller's is
// current again afterwards.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/common/runtime/status.h"
#include "quire/device.h"

namespace quire::cuda {

class DeviceScope {
 public:
  explicit DeviceScope(Device device) : device_(device.index) {
    check(cudaGetDevice(&previous_), "cudaGetDevice");
    if (device_ != previous_) check(cudaSetDevice(device_), "cudaSetDevice");
  }
  ~DeviceScope() {
    if (device_ != previous_) static_cast<void>(cudaSetDevice(previous_));
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int device_ = 0;
  int previous_ = 0;
};

}  // namespace quire::cuda
