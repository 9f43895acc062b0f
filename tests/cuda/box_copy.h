// SPDX-License-Identifier: Apache-2.0
// One tensor-map copy on the GPU, and what it left in shared memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/common/runtime/tensor_map.h"

namespace quire::cuda {

inline constexpr std::size_t kBoxCopyMaxBytes = 64 * 1024;

// Poisons `bytes` bytes of shared memory, copies the box at `coordinate` (fastest first) there and
// returns them.
std::vector<std::byte> copy_box(const TensorMap& map, int rank,
                                const std::array<std::int64_t, 5>& coordinate, std::int64_t bytes);

}  // namespace quire::cuda
