// SPDX-License-Identifier: Apache-2.0
// The products of a tile of keys with a warpgroup's rows of q, and of its values with their weights.
#pragma once

#include "cuda/hopper/mla_decode/few_rows/shared.cuh"
#include "cuda/hopper/mla_decode/params.h"

namespace quire::cuda::hopper {

// Of a thread's two keys.
struct KeyScales {
  float latent[2][FewRowsConfig::kScaleGroups];
  float rope[2];
};

// One definition for each kind of rows (multiply_fp8.cuh, multiply_bf16.cuh).
//   score(tile, scores)     waits for tile number `tile`; 64 keys × the group's rows
//   valid()                 a bit per key, of that tile
//   scales()                KeyScales, where rows have them
//   zero_from(key)          its values from `key` on, by the whole group, become zeros
//   add_values(sums)        blocks of 64 value columns × the group's rows; gives its slots back
template <FewRowsConfig kConfig, DType kLatents = kConfig.latents> class MultiplyTile;

// Who has read a slot, by whole warps.
__device__ inline void arrive_by_warp(EmptyBarrier& barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier.arrive();
}

// Rows [first, 64) of a slab become zeros; by a warpgroup.
__device__ inline void zero_rows(std::byte* slab, int first) {
  constexpr int kChunks = kRowBytes / 16;
  auto* chunks = reinterpret_cast<uint4*>(slab);
#pragma unroll 1
  for (int chunk = first * kChunks + static_cast<int>(threadIdx.x % 128);
       chunk < FewRowsConfig::kKeys * kChunks; chunk += 128) {
    chunks[chunk] = uint4{};
  }
}

}  // namespace quire::cuda::hopper
