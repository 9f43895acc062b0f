// SPDX-License-Identifier: Apache-2.0
// What plans and reports need to know of a GPU.
#pragma once

#include <cstdint>
#include <string>

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

}  // namespace quire::cuda
