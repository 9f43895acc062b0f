// SPDX-License-Identifier: Apache-2.0
// Where a command runs its cases.
#pragma once

#include <stdexcept>
#include <string>

#include "tools/device/cuda.h"

namespace quire::tools {

// Throws std::runtime_error for a device that this build or this machine does not have.
inline void require_device(const std::string& device) {
  const std::string reason = device == "cuda" ? why_no_cuda() : "";
  if (!reason.empty()) throw std::runtime_error("--device " + device + ": " + reason);
}

}  // namespace quire::tools
