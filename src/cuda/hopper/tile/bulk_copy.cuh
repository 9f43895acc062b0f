// SPDX-License-Identifier: Apache-2.0
// A run of bytes into shared memory by the copy engine. Called by one thread.
#pragma once

#include "cuda/hopper/tile/tma.cuh"

namespace quire::cuda::hopper {

// Addresses and size are multiples of 16.
__device__ inline void load_bytes(const std::byte* from, void* shared, int bytes,
                                  FullBarrier& full) {
  cute::SM90_BULK_COPY_G2S::copy(from, reinterpret_cast<std::uint64_t*>(&full), shared, bytes);
}

}  // namespace quire::cuda::hopper
