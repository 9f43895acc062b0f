// SPDX-License-Identifier: Apache-2.0
#include "quire/device.h"

namespace quire {

std::string to_string(Device device) {
  return device.kind == DeviceKind::cpu ? "cpu" : "cuda:" + std::to_string(device.index);
}

}  // namespace quire
