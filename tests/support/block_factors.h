// SPDX-License-Identifier: Apache-2.0
// Finite factors for GGUF blocks of random bytes.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/block_format.h"
#include "quire/element.h"
#include "support/host_tensor.h"

namespace quire::test {

// Into the block at `start`: f16 factors from −size to size, or a power of two near it.
inline void store_block_factors(const BlockFormat& block, double size, std::uint64_t& seed,
                                std::byte* start) {
  if (block.is_e8m0) {
    const double exponent = std::round(std::log2(size) + 2.0 * next_uniform(seed));
    start[block.scale_at] = static_cast<std::byte>(static_cast<int>(exponent) + 128);
    return;
  }
  store_element(start + block.scale_at, DType::f16, 0, size * next_uniform(seed));
  if (block.has_mins()) {
    store_element(start + block.min_at, DType::f16, 0, size * next_uniform(seed));
  }
}

}  // namespace quire::test
