// SPDX-License-Identifier: Apache-2.0
// A TileDescriptor in the form TMA reads. Host code carries the 128 bytes without
// seeing CUDA's headers.
#pragma once

#include <array>
#include <cstddef>

#include "quire/tile_descriptor.h"

namespace quire::cuda {

// Same size and alignment as CUtensorMap: pass it to a kernel as a __grid_constant__ parameter.
struct alignas(128) TensorMap {
  std::array<std::byte, 128> bytes{};
};

// Checks the descriptor against the hardware's limits, then asks the driver to encode it for
// `base`, a device address. Throws Error (runtime) where there is no driver or it refuses.
TensorMap encode_tensor_map(const TileDescriptor& descriptor, void* base);

// As encode_tensor_map, of f32 numbers that TMA rounds to tf32 on their way: their last 13 bits are 0
// in shared memory.
TensorMap encode_tf32_map(const TileDescriptor& descriptor, void* base);

}  // namespace quire::cuda
