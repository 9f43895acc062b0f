// SPDX-License-Identifier: Apache-2.0
#include "cuda/absent/absent.h"

#include "quire/error.h"

namespace quire::cuda {

std::string refuse_absent(Device device) {
  if (device.kind != DeviceKind::cuda) return "tensors are on " + to_string(device);
  return "this build has no CUDA";
}

void throw_absent(std::string_view op) {
  throw Error(ErrorCode::unsupported, std::string(op), "device", "one that this build serves",
              "cuda in a build without CUDA");
}

}  // namespace quire::cuda
