// SPDX-License-Identifier: Apache-2.0
// Rows of V behind the sequence's end, in its last page, may hold anything, and 0 · NaN is NaN.
#pragma once

#include "cuda/common/prefill_attention/shared.cuh"

namespace quire::cuda {

// By a warpgroup: rows first … of a block. Every consumer writes the zeros for itself; the others
// write the same.
template <PrefillConfig kConfig> __device__ inline void zero_values(std::byte* block, int first) {
  constexpr int kChunks = kRowBytes / 16;
#pragma unroll 1
  for (int swizzle_column = 0; swizzle_column < kConfig.value_swizzle_columns(); ++swizzle_column) {
    auto* chunks = reinterpret_cast<uint4*>(
        block + swizzle_column * PrefillShared<kConfig>::kSwizzleColumnBytes);
#pragma unroll 1
    for (int chunk = first * kChunks + static_cast<int>(threadIdx.x % 128);
         chunk < kConfig.block_keys * kChunks; chunk += 128) {
      chunks[chunk] = uint4{};
    }
  }
}

}  // namespace quire::cuda
