// SPDX-License-Identifier: Apache-2.0
// What plans and reports need to know of a GPU.
#pragma once

#include <compare>
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
  int driver_cuda = 0;                      // the newest CUDA that its driver runs: 13000 is 13.0
};

// 0 where there is no driver or no GPU: not an error.
int num_devices();
DeviceFacts device_facts(int device);
struct ComputeCapability {
  int major = 0;
  int minor = 0;

  friend auto operator<=>(const ComputeCapability&, const ComputeCapability&) = default;
};

// The facts that plans and launches ask for: cheap.
int num_sms(int device);
ComputeCapability compute_capability(int device);
// "13.0", the newest CUDA that the driver runs; empty without a driver.
std::string driver_version();

// Whether the device runs the kernels of sm90/, which are compiled for sm_90a: compute capability 9.0 and no other. Never
// in a build with QUIRE_CUDA_ANY_PTX_ONLY, which is there to run any/ as an older GPU does.
bool runs_sm90(ComputeCapability found);

// Empty where the kernels of any/ (sm_80 and newer) or of sm90/ run on the device of the tensors, otherwise why not:
// tensors on the host, no such GPU, one of another compute capability, a driver too old to compile PTX of this build.
std::string refuse_unless_sm80(Device device);
std::string refuse_unless_sm90(Device device);

// For tests of planners: while it lives, the device of that index has these facts, whatever the machine has. Not for a
// device that kernels run on.
class PretendedDevice {
 public:
  PretendedDevice(int device, const DeviceFacts& facts);
  ~PretendedDevice();
  PretendedDevice(const PretendedDevice&) = delete;
  PretendedDevice& operator=(const PretendedDevice&) = delete;

 private:
  int device_;
};

// Which part of a device the work on a stream runs on. Under MPS and MIG the device itself says that it has fewer
// SMs; a green context does not change what the device says, and its streams are asked.

struct StreamShare {
  int num_sms = 0;
  int max_cluster = 0;  // CTAs that find room beside each other
};

// Cheap, waits for nothing, and may be asked while the stream is recorded. The device is the current one.
StreamShare share_of(void* stream, int device);

}  // namespace quire::cuda
