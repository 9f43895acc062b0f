// SPDX-License-Identifier: Apache-2.0
// Four matrices of 8 × 8 numbers of 16 bits from a warp's registers, as products leave them, into
// shared memory: lane l names the place of row l % 8 of matrix l / 8.
#pragma once

#include <vector_types.h>

#include <cstdint>

namespace quire::cuda {

__device__ inline void store_matrices(std::uint32_t to, const uint4& words) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w)
               : "memory");
}

}  // namespace quire::cuda
