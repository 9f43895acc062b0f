// SPDX-License-Identifier: Apache-2.0
// The warp that brings transposed V to the consumers, a block in one piece, when all of its head is there.
#pragma once

#include "cuda/common/pipeline/tma.cuh"
#include "cuda/common/prefill_attention/shared.cuh"
#include "cuda/common/thread/release.cuh"
#include "cuda/sm90/flash_attention/prefill/block_walk.cuh"
#include "cuda/sm90/flash_attention/prefill/fp8/transposed_keys.h"

namespace quire::cuda::sm90::flash_attention {

template <PrefillConfig kConfig> class TransposedLoad {
 public:
  using Shared = PrefillShared<kConfig>;

  __device__ TransposedLoad(const PrefillParams& params, const TransposedKeys& keys, Shared& shared)
      : params_(params), keys_(keys), shared_(shared) {}

  __device__ void run() {
    for (PrefillTile tile = next_tile(); tile.sequence >= 0; tile = next_tile()) {
      await_head(tile);
      for (int block = tile.end_block - 1; block >= tile.first_block; --block) {
        load(keys_.row_of(tile.sequence, tile.kv_head, block));
      }
    }
  }

 private:
  // Also in place of the warp that transposes, which needs no tiles.
  __device__ PrefillTile next_tile() {
    const int stage = tile_at_.stage;
    const PrefillTile tile = shared_.take_tile(tile_at_);
    shared_.tile_ring.empty[stage].arrive();
    return tile;
  }

  __device__ void await_head(const PrefillTile& tile) const {
    if (keys_.before.has(tile.sequence, tile.kv_head)) return;
    const SeenBlocks blocks(params_.mask, tile.position, tile.tokens, keys_.blocks);
    const std::uint32_t* done = keys_.done + tile.sequence * keys_.kv_heads + tile.kv_head;
    while (load_acquired(done) < static_cast<std::uint32_t>(blocks.count())) {
    }
    asm volatile("fence.proxy.async.global;" ::: "memory");
  }
  __device__ void load(int row) {
    shared_.value_ring.wait_empty(at_);
    if (threadIdx.x % 32 == 0) {
      FullBarrier& full = shared_.value_ring.full[at_.stage];
      full.arrive_and_expect_tx(Shared::kCopiedValueBytes);
      load_box({.map = &keys_.values,
                .shared = shared_.values[at_.stage],
                .full = &full,
                .hint = L2Hint::EVICT_LAST},
               0, row);
    }
    __syncwarp();
    at_.advance();
  }

  const PrefillParams& params_;
  const TransposedKeys& keys_;
  Shared& shared_;
  RingPosition<kConfig.value_stages> at_;
  RingPosition<Shared::kTileRing> tile_at_;
};

}  // namespace quire::cuda::sm90::flash_attention
