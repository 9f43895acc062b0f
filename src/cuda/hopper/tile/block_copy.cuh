// SPDX-License-Identifier: Apache-2.0
// Larger pieces into shared memory by the copy engine, where a box of 128 bytes of K (tma.cuh) would
// be too many instructions for the one thread that issues them.
#pragma once

#include "cuda/hopper/tile/tma.cuh"

namespace quire::cuda::hopper {

// The box at (0, row, block) of a matrix cut into blocks of columns.
__device__ inline void load_blocks(const BoxLoad& load, int row, int block) {
  cute::SM90_TMA_LOAD_3D::copy(load.map, load.barrier(), static_cast<std::uint64_t>(load.hint),
                               load.shared, 0, row, block);
}

// A run of bytes; addresses and size are multiples of 16.
__device__ inline void load_bytes(const std::byte* from, void* shared, int bytes,
                                  FullBarrier& full) {
  cute::SM90_BULK_COPY_G2S::copy(from, reinterpret_cast<std::uint64_t*>(&full), shared, bytes);
}

}  // namespace quire::cuda::hopper
