// SPDX-License-Identifier: Apache-2.0
// Where a tensor lives.
#pragma once

#include <cstdint>
#include <string>

#include "quire/export.h"

namespace quire {

enum class DeviceKind : std::uint8_t { cpu, cuda };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;

  bool operator==(const Device&) const = default;
};

QUIRE_API std::string to_string(Device device);  // "cpu", "cuda:0"

}  // namespace quire
