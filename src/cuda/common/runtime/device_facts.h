// SPDX-License-Identifier: Apache-2.0
// What plans and reports need to know of a GPU.
#pragma once

#include <cstdint>
#include <string>

#include "quire/device.h"

namespace quire::cuda {

struct DeviceFacts {
  std::string name;  // "NVIDIA H200"
  int compute_major = 0;
  int compute_minor = 0;
  int num_sms = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t shared_bytes_per_block = 0;  // the opt-in limit
};

// 0 where there is no driver or no GPU: not an error.
int num_devices();
DeviceFacts device_facts(int device);
// The one fact that launches ask for: cheap.
int num_sms(int device);
// "13.0", the newest CUDA that the driver runs; empty without a driver.
std::string driver_version();

// Empty where kernels built for Hopper run on the device of the tensors, otherwise why not: tensors
// on the host, no such GPU, or one of another compute capability.
std::string refuse_hopper(Device device);

// Which part of a device the work on a stream runs on. Under MPS and MIG the device itself says that it has fewer
// SMs; a green context does not change what the device says, and its streams are asked.

struct StreamShare {
  int num_sms = 0;
  int max_cluster = 0;  // CTAs that find room beside each other
};

// Cheap, waits for nothing, and may be asked while the stream is recorded. The device is the current one.
StreamShare share_of(void* stream, int device);

}  // namespace quire::cuda
