// SPDX-License-Identifier: Apache-2.0
// Where a command runs its cases.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "tools/device/cuda.h"

namespace quire::tools {

// Throws std::runtime_error for a device that this build or this machine does not have.
inline void require_device(const std::string& device) {
  const std::string reason = device == "cuda" ? why_no_cuda() : "";
  if (!reason.empty()) throw std::runtime_error("--device " + device + ": " + reason);
}

// On a device that require_device() lets pass.
inline std::unique_ptr<Runner> make_runner(const std::string& device, Built& built) {
  if (device == "cuda") return make_cuda_runner(built);
  return std::make_unique<HostRunner>(built);
}

}  // namespace quire::tools
