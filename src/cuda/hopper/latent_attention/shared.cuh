// SPDX-License-Identifier: Apache-2.0
// Shared memory of a block, and what its roles agree on.
//
//   loading warps    wait empty; fill 16 of a stage's 64 rows each with this block's columns: `slabs` in
//                    128-byte swizzle, `tail` in 64-byte swizzle; rows that are hidden are zeros and
//                    have no bit in `valid`. full: a lane of each.
//   items            one loading thread describes the next item; full: its arrival. empty: all eight
//                    consumer warps when the item is finished.
//   partial scores   written by the other block's warp of the same number (partial.full: its bytes),
//                    after this block's warp has let it (partial.empty of the other block).
#pragma once

#include <cstddef>

#include "cuda/hopper/flash_attention/decode/scan_line.cuh"
#include "cuda/hopper/latent_attention/config.h"
#include "cuda/hopper/tile/ring.cuh"
#include "cuda/hopper/tile/wgmma.cuh"

namespace quire::cuda::hopper {

// A piece of an item: query rows × a run of tiles of keys.
struct LatentItem {
  int tiles;        // 0: there are no more items
  int first_key;    // of tile 0
  int num_keys;     // of the sequence
  int position;     // of the first row's token
  int first_token;  // row of q of the first row
  int rows;         // in use
  long long slot;   // of the workspace; -1: the piece is the whole item
};

struct LatentStage {
  static constexpr int kSlabBytes = LatentConfig::kKeys * kRowBytes;

  std::byte slabs[LatentConfig::kSlabs][kSlabBytes];
  std::byte tail[LatentConfig::kKeys * LatentConfig::kTailBytes];
};

// What one warp converts of a tile, as the cache has it.
struct alignas(128) RawRows {
  std::byte latents[LatentConfig::kWarpKeys][LatentConfig::kColumns];
  std::byte
      rope[LatentConfig::kWarpKeys * LatentConfig::kTailBytes];  // rows of one byte, or of two
  std::byte scales[LatentConfig::kWarpKeys][16];
};

// Where 16-byte chunk `chunk` of a row stands in a tile of 128-byte rows, and of 64-byte rows.
__device__ inline int slab_offset(int row, int chunk) {
  return row * kRowBytes + ((chunk ^ row) % 8) * 16;
}
__device__ inline int tail_offset(int row, int chunk) {
  return row * LatentConfig::kTailBytes + ((chunk ^ (row / 2)) % 4) * 16;
}

template <LatentConfig kConfig> struct LatentShared {
  static constexpr int kQuerySlabBytes = kConfig.rows() * kRowBytes;
  static constexpr int kPartialVectors = LatentConfig::kKeys / 8;  // of a thread's scores

  alignas(1024) std::byte q[LatentConfig::kSlabs][kQuerySlabBytes];
  alignas(1024) std::byte q_tail[kConfig.rows() * LatentConfig::kTailBytes];
  alignas(1024) LatentStage stages[kConfig.stages];
  // Thread for thread, as the products leave them. Between items: the warpgroups' sums.
  alignas(16) float4 partials[LatentConfig::kWarps][kPartialVectors][32];
  float4 stats[LatentConfig::kThreads];
  // Rows as the cache has them, until they are converted.
  RawRows raw[kConfig.raw_stages][LatentConfig::kLoadWarps];
  FullBarrier raw_full[kConfig.raw_stages][LatentConfig::kLoadWarps];  // bytes of the copy engine
  alignas(8) std::uint16_t valid[kConfig.stages][LatentConfig::kLoadWarps];
  LatentItem items[LatentConfig::kItems];
  LineScanShared line;
  RingBarriers<kConfig.stages> ring;
  RingBarriers<LatentConfig::kItems> item_ring;
  FullBarrier partial_full[LatentConfig::kWarps];
  EmptyBarrier partial_empty[LatentConfig::kWarps];
  EmptyBarrier join;  // of the threads that multiply (join.cuh)

  static_assert(sizeof(LatentStage) % 1024 == 0);
  static_assert(kConfig.row_groups == 2 || kConfig.stages % 2 == 0);

  __device__ void init() {
    // Every thread that read what will be replaced arrives: racecheck does not follow one lane's arrival
    // for its warp.
    ring.init(LatentConfig::kLoadWarps, 128 * kConfig.row_groups);
    item_ring.init(1, LatentConfig::kThreads);
    for (auto& stage : raw_full) {
      for (FullBarrier& full : stage) full.init(1);
    }
    join.init(LatentConfig::kThreads);
    for (int warp = 0; warp < LatentConfig::kWarps; ++warp) {
      partial_full[warp].init(1);
      partial_empty[warp].init(1);
    }
  }
  // A bit per key of the stage.
  __device__ std::uint64_t valid_keys(int stage) const {
    return *reinterpret_cast<const std::uint64_t*>(valid[stage]);
  }
};

}  // namespace quire::cuda::hopper
