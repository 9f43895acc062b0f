// SPDX-License-Identifier: Apache-2.0
// Shared memory of the prefill kernel.
#pragma once

#include "cuda/common/mma/wgmma.cuh"
#include "cuda/common/pipeline/ring.cuh"
#include "cuda/common/prefill_attention/params.h"
#include "cuda/common/prefill_attention/schedule.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda {

// Products over the columns of one of the warpgroups that share rows, as its threads hold them, for the others to add.
template <PrefillConfig kConfig> struct PartialScores {
  static constexpr int kVectors = kConfig.block_keys / 8;  // of a thread
  alignas(16) float4 partial_scores[kConfig.column_groups][kVectors][128];
};
template <PrefillConfig kConfig>
requires(kConfig.column_groups == 1) struct PartialScores<kConfig> {
};

template <PrefillConfig kConfig> struct PrefillShared : PartialScores<kConfig> {
  static constexpr int kTileRing = 3;
  static constexpr int kWarpsOfConsumer = 4;
  static constexpr int kQuerySwizzleColumnBytes = kConfig.cta_rows() * kRowBytes;
  static constexpr int kSwizzleColumnBytes = kConfig.block_keys * kRowBytes;
  static constexpr int kKeyBytes = kConfig.key_swizzle_columns() * kSwizzleColumnBytes;
  static constexpr int kValueBytes = kConfig.value_swizzle_columns() * kSwizzleColumnBytes;
  static constexpr int kCopiedKeyBytes = kConfig.copied_key_swizzle_columns() * kSwizzleColumnBytes;
  static constexpr int kCopiedValueBytes =
      kConfig.copied_value_swizzle_columns() * kSwizzleColumnBytes;

  // Swizzle columns of 64 columns, each a swizzled tile.
  alignas(1024)
      std::byte q[kConfig.q_buffers][kConfig.query_swizzle_columns() * kQuerySwizzleColumnBytes];
  alignas(1024) std::byte keys[kConfig.key_stages][kKeyBytes];
  alignas(1024) std::byte values[kConfig.value_stages][kValueBytes];
  // Bit g: keys 8g … 8g + 7 of the K block are not there.
  std::uint32_t holes[kConfig.key_stages];
  PrefillTile tiles[kTileRing];
  bool is_last[kConfig.consumers];  // of a cut tile's splits
  RingBarriers<kConfig.key_stages> key_ring;
  RingBarriers<kConfig.value_stages> value_ring;
  RingBarriers<kConfig.q_buffers> q_rings[kConfig.q_parts];
  RingBarriers<kTileRing> tile_ring;
  // Copied blocks that have become f16; used where blocks are converted.
  EmptyBarrier keys_ready[kConfig.key_stages];
  EmptyBarrier values_ready[kConfig.value_stages];

  // PrefillAttend awaits the next blocks before it frees the last.
  static_assert(kConfig.column_groups > 1 ||
                (kConfig.key_stages >= 2 && kConfig.value_stages >= 2));

  __device__ void init() {
    // Consumers of all CTAs free a stage in each of them.
    key_ring.init(1, kConfig.cluster * kConfig.consumers * kWarpsOfConsumer);
    value_ring.init(1, kConfig.cluster * kConfig.consumers);
    for (auto& ring : q_rings) ring.init(1, kConfig.consumers / kConfig.q_parts);
    // Loading warps but the first read it too.
    tile_ring.init(1, (kConfig.loading_warps - 1) * 32 + 128 * kConfig.consumers);
    for (EmptyBarrier& ready : keys_ready) ready.init(2 * 32);
    for (EmptyBarrier& ready : values_ready) ready.init(2 * 32);
  }
  // The next tile for a role that stands `at` it in the ring; all threads of the role. It stays there
  // until they have passed by.
  __device__ const PrefillTile& look_at_tile(const RingPosition<kTileRing>& at) {
    tile_ring.wait_full(at);
    return tiles[at.stage];
  }
  __device__ void pass_tile(RingPosition<kTileRing>& at) {
    tile_ring.empty[at.stage].arrive();
    at.advance();
  }
  __device__ PrefillTile take_tile(RingPosition<kTileRing>& at) {
    const PrefillTile tile = look_at_tile(at);
    pass_tile(at);
    return tile;
  }
  // The holes of the keys at `stage`: read by the lane of a consumer's warp that frees the stage for
  // it, so nobody speaks for what others have read; then told to the others. Between the two something
  // else should be done.
  __device__ std::uint32_t read_holes(int stage) const {
    return threadIdx.x % 32 == 0 ? holes[stage] : 0;
  }
  __device__ static std::uint32_t tell_holes(std::uint32_t read) {
    return __shfl_sync(0xffffffff, read, 0);
  }
  __device__ void free_keys(int stage) { free_stage(key_ring.empty[stage], threadIdx.x % 32); }
  // By a thread for every CTA of the cluster, of those that speak for the others: the first for its own, whose producer
  // writes the holes that it has read.
  __device__ static void free_stage(EmptyBarrier& empty, unsigned thread) {
    if constexpr (kConfig.cluster == 1) {
      if (thread == 0) empty.arrive();
    } else {
      static_assert(kConfig.cluster == 2);
      if (thread < 2) {
        empty.arrive(thread ^ static_cast<unsigned>(rank_in_cluster<kConfig.cluster>()));
      }
    }
  }
  // Of the part that a tile's row belongs to.
  __device__ RingBarriers<kConfig.q_buffers>& q_ring(int row) {
    return q_rings[row / kConfig.part_rows()];
  }
  // Keys, values that products may read.
  __device__ void await_keys(const RingPosition<kConfig.key_stages>& at) {
    if constexpr (kConfig.converts_keys()) {
      keys_ready[at.stage].wait(at.phase);
    } else {
      key_ring.wait_full(at);
    }
  }
  __device__ void await_values(const RingPosition<kConfig.value_stages>& at) {
    if constexpr (kConfig.converts_values()) {
      values_ready[at.stage].wait(at.phase);
    } else {
      value_ring.wait_full(at);
    }
  }
};

// How every form of the prefill kernel is started.

template <PrefillConfig kConfig> LaunchShape prefill_shape(const PrefillLaunch& where) {
  return {.grid = dim3(static_cast<unsigned>(where.blocks)),
          .block = dim3(kConfig.threads()),
          .cluster = static_cast<unsigned>(kConfig.cluster),
          .shared_bytes = sizeof(PrefillShared<kConfig>)};
}

}  // namespace quire::cuda
