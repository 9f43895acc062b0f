// SPDX-License-Identifier: Apache-2.0
// A consumer warpgroup: 64 tokens × tile_n columns, summed in registers and stored from there.
#pragma once

#include "cuda/common/matmul/deferred_store.cuh"
#include "cuda/common/matmul/promoted_sums.cuh"
#include "cuda/common/matmul/tile_position.cuh"
#include "cuda/common/mma/row_order.h"
#include "cuda/common/thread/thread.cuh"

namespace quire::cuda {

// bf16, f16, f32, and fp8 that is not promoted.
template <TileConfig kConfig, int kColumns, typename Meanwhile, typename NearTheEnd>
__device__ void sum_tile(int k_blocks, TileShared<kConfig>& shared, int consumer,
                         RingPosition<kConfig.stages>& at, float (&sums)[kColumns / 2],
                         const Meanwhile& meanwhile, const NearTheEnd& near_the_end) {
  BlockChain<kConfig, kColumns> chain{shared, consumer, at, sums};
  int block = start_and_store(k_blocks, chain, meanwhile, std::make_integer_sequence<int, 4>{});
  for (; block < k_blocks; ++block) chain.start(false);
  if constexpr (kConfig.has_scales()) near_the_end();
  chain.finish();
}

// kColumns: tile_n or tail_n.
template <TileConfig kConfig, int kColumns, int kRegisters, typename Meanwhile, typename NearTheEnd>
__device__ void sum_any(const TileParams& params, TileShared<kConfig>& shared,
                        const BlockPlace& place, RingPosition<kConfig.stages>& at,
                        float (&sums)[kRegisters], const Meanwhile& meanwhile,
                        const NearTheEnd& near_the_end) {
  if constexpr (!kConfig.promotes()) {
    sum_tile<kConfig, kColumns>(params.k_blocks, shared, place.consumer, at,
                                first_of<kColumns / 2>(sums), meanwhile, near_the_end);
  } else if constexpr (kConfig.scaling == Scaling::rows) {
    sum_rows<kConfig, kColumns>(params.k_blocks, shared, place.consumer, at,
                                first_of<kColumns / 2>(sums), meanwhile, near_the_end);
  } else if constexpr (kConfig.part_sets() == 2) {
    sum_blocks<kConfig>(params.k_blocks, shared, place, at, sums, meanwhile);
  } else {
    sum_blocks_by_parts<kConfig, kColumns>(params.k_blocks, shared, place, at, sums, meanwhile);
  }
}

// Where a consumer warpgroup stands.
template <TileConfig kConfig> struct Walk {
  // Of the warpgroup's 128. Opaque, so that it stays in a register: read anew before a block's second product it
  // came too late for the tensor core, 2 to 4 % of 2048 tokens with block scales.
  int thread = opaque(static_cast<int>(threadIdx.x % 128));
  int consumer;
  int row;  // of the thread's first token in the tile; the second is 8 below
  TilePositions<kConfig> positions;
  RingPosition<kConfig.stages> at;
  RingPosition<kConfig.kv_stages()> kv_at;
  int exchanges = 0;  // with the block beside this one (shared.cuh)

  __device__ BlockPlace place(const TilePosition& tile) const {
    return {.thread = thread,
            .consumer = consumer,
            .row = row,
            .second_group = (128 - tile.column % 128) / kGroupRows};
  }
};

// A tile with columns of K or V that become codes. Defined in quantized_kv_epilogue.cuh, which their variants include: the other
// kernels are compiled without it.
template <TileConfig kConfig, int kRegisters>
__device__ void store_codes(const TileParams& params, TileShared<kConfig>& shared,
                            Walk<kConfig>& walk, const float (&sums)[kRegisters]);

// The tile waits to be stored, or is stored now if it has no row addresses.
template <TileConfig kConfig, int kColumns, typename Deferred>
__device__ void finish_tile(const TileParams& params, TileShared<kConfig>& shared,
                            Walk<kConfig>& walk, const float (&sums)[kColumns / 2],
                            Deferred& done) {
  const int kv_stage = walk.kv_at.stage;
  const int row = walk.row;
  const TileRoute& tile = shared.routes[kv_stage];
  if (tile.groups > 0) {
    done.take(params, shared, kv_stage, row, sums);
    return;
  }
  if constexpr (kConfig.kv_rows == KvRows::codes) {
    store_codes(params, shared, walk, sums);
  } else {
    store_columns(params.outputs, finishing<kConfig>(shared, kv_stage, row), sums, tile, row,
                  shared.places[kv_stage].offsets[0]);
  }
  shared.kv_ring.empty[kv_stage].arrive();
  done.forget();
}

// All tiles of kColumns columns. The last one still waits to be stored.
template <TileConfig kConfig, int kColumns, typename Deferred>
__device__ void multiply_tiles(const TileParams& params, TileShared<kConfig>& shared,
                               Walk<kConfig>& walk, float (&sums)[kConfig.tile_n / 2],
                               Deferred& done) {
  const int row = walk.row;
  for (TilePosition tile; walk.positions.template next_of<kColumns>(tile); walk.kv_at.advance()) {
    sum_any<kConfig, kColumns>(
        params, shared, walk.place(tile), walk.at, sums,
        [&](auto part) { done.template store<decltype(part)>(params, shared, row, sums); },
        [&] {
          shared.kv_ring.wait_full(walk.kv_at);
          done.look_up(params, shared, walk.kv_at.stage, row);
        });
    shared.kv_ring.wait_full(walk.kv_at);
    finish_tile<kConfig, kColumns>(params, shared, walk, first_of<kColumns / 2>(sums), done);
  }
}

// Promoted ones: each has registers of its own and is stored at its end. A cluster has one or two of them, and where
// the sums of whole tiles wait for them the compiler spills, or has sums and products in the same banks of registers,
// which costs whole tiles more than narrow ones gain.
template <TileConfig kConfig>
__device__ void multiply_tail_tiles(const TileParams& params, TileShared<kConfig>& shared,
                                    Walk<kConfig>& walk) {
  constexpr int kColumns = kConfig.tail_n;
  float sums[kColumns / 2];
  DeferredStore<kConfig, Scaling::blocks> done;
  for (TilePosition tile; walk.positions.next_tail(tile); walk.kv_at.advance()) {
    sum_any<kConfig, kColumns>(
        params, shared, walk.place(tile), walk.at, sums, [](auto) {}, [] {});
    shared.kv_ring.wait_full(walk.kv_at);
    finish_tile<kConfig, kColumns>(params, shared, walk, sums, done);
    done.template store<TailTile<kColumns>>(params, shared, walk.row, sums);
  }
}

template <TileConfig kConfig>
__device__ void multiply_role(const TileParams& params, TileShared<kConfig>& shared, int consumer) {
  const int row =
      consumer * kWgmmaRows + static_cast<int>(threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4);
  Walk<kConfig> walk{.consumer = consumer, .row = row, .positions = TilePositions<kConfig>(params)};
  float sums[kConfig.tile_n / 2];
  FinishedTile<kConfig> done;
  done.forget();
  multiply_tiles<kConfig, kConfig.tile_n>(params, shared, walk, sums, done);
  if constexpr (kConfig.has_tail() && !kConfig.promotes()) {
    multiply_tiles<kConfig, kConfig.tail_n>(params, shared, walk, sums, done);
  }
  done.template store<WholeTile>(params, shared, row, sums);
  if constexpr (kConfig.has_tail() && kConfig.promotes()) {
    multiply_tail_tiles(params, shared, walk);
  }
}

}  // namespace quire::cuda
