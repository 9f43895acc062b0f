// SPDX-License-Identifier: Apache-2.0
#include "cuda/runtime/device_values.h"

#include "cuda/absent/absent.h"

namespace quire::cuda {

bool is_capturing(void*) {
  return false;
}

std::vector<std::byte> download(const TensorView&, void*) {
  throw_absent("download");
}

}  // namespace quire::cuda
