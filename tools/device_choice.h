// SPDX-License-Identifier: Apache-2.0
// Where a command runs its cases.
#pragma once

#include <stdexcept>
#include <string>

namespace quire::tools {

// Throws std::runtime_error for a device that this build cannot use.
inline void require_device(const std::string& device) {
  if (device != "cpu") {
    throw std::runtime_error("--device " + device + ": no op has a kernel for it in this build");
  }
}

}  // namespace quire::tools
