// SPDX-License-Identifier: Apache-2.0
// A kernel all of whose thread blocks run at the same time, so that they may wait for each other (the
// cooperative groups' barrier of the grid). A grid that the device has no room for is an error.
#pragma once

#include "cuda/common/runtime/launch.h"

namespace quire::cuda {

template <typename... Params>
void launch_cooperative(void (*kernel)(Params...), const LaunchShape& shape, cudaStream_t stream,
                        const std::type_identity_t<Params>&... arguments) {
  const auto* address = reinterpret_cast<const void*>(kernel);
  allow_shared_bytes(address, shape.shared_bytes);
  std::array<void*, sizeof...(Params)> places{const_cast<Params*>(&arguments)...};
  check(cudaLaunchCooperativeKernel(address, shape.grid, shape.block, places.data(),
                                    shape.shared_bytes, stream),
        "cudaLaunchCooperativeKernel");
}

}  // namespace quire::cuda
