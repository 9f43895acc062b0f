// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/runtime/tensor_map.h"

namespace quire::cuda {

// As encode_tensor_map, of f32 numbers that the copy engine rounds to tf32 on their way: their last 13 bits are 0
// in shared memory.
TensorMap encode_tf32_map(const TileDescriptor& descriptor, void* base);

}  // namespace quire::cuda
