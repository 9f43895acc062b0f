// SPDX-License-Identifier: Apache-2.0
// Four warps: the first takes tiles off the schedule, tells everybody, and loads q and half of every
// block of K; the second the other half; the others do the same for V. They run ahead of the
// consumers, across tiles. Where K and V come from the source knows (paged_source.cuh).
#pragma once

#include "cuda/hopper/flash_attention/prefill/shared.cuh"
#include "cuda/hopper/tile/block.cuh"
#include "cuda/hopper/tile/tma.cuh"

namespace quire::cuda::hopper {

template <PrefillConfig kConfig, typename Source> class PrefillLoad {
 public:
  using Shared = PrefillShared<kConfig>;
  using Piece = typename Source::Piece;

  __device__ PrefillLoad(const PrefillParams& params, const typename Source::Params& source,
                         Shared& shared, int half)
      : params_(params), source_(source, half), shared_(shared), announces_(half == 0) {}

  // Tiles, q and keys.
  __device__ void lead() {
    PrefillSchedule<kConfig> schedule(params_);
    for (PrefillTile tile = schedule.next(); publish(tile);) {
      Piece piece = source_.find(tile, tile.end_block - 1);
      PrefillTile following{.sequence = -1};
      for (int block = tile.end_block - 1; block >= tile.first_block; --block) {
        const Piece next = source_.find(tile, block - 1);  // arrives while this one waits
        load_key_block(piece);
        if (block == tile.end_block - 1) {
          load_queries(tile);  // behind the keys: its place may be taken by the tile before
          following = schedule.next();
        }
        piece = next;
      }
      tile = following;
    }
  }

  __device__ void load_keys() {
    for (PrefillTile tile = next_tile(); tile.sequence >= 0; tile = next_tile()) {
      Piece piece = source_.find(tile, tile.end_block - 1);
      for (int block = tile.end_block - 1; block >= tile.first_block; --block) {
        const Piece next = source_.find(tile, block - 1);
        load_key_block(piece);
        piece = next;
      }
    }
  }

  __device__ void load_values() {
    for (PrefillTile tile = next_tile(); tile.sequence >= 0; tile = next_tile()) {
      Piece piece = source_.find(tile, tile.end_block - 1);
      for (int block = tile.end_block - 1; block >= tile.first_block; --block) {
        const Piece next = source_.find(tile, block - 1);
        load_value_block(piece);
        piece = next;
      }
    }
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }

  // False at the end of the schedule, which everybody is told too.
  __device__ bool publish(const PrefillTile& tile) {
    shared_.tile_ring.wait_empty(tile_at_);
    if (lane() == 0) {
      shared_.tiles[tile_at_.stage] = tile;
      shared_.tile_ring.full[tile_at_.stage].arrive();
    }
    tile_at_.advance();
    return tile.sequence >= 0;
  }
  __device__ PrefillTile next_tile() {
    shared_.tile_ring.wait_full(tile_at_);
    const PrefillTile tile = shared_.tiles[tile_at_.stage];
    shared_.tile_ring.empty[tile_at_.stage].arrive();
    tile_at_.advance();
    return tile;
  }

  __device__ void load_queries(const PrefillTile& tile) {
    shared_.q_ring.wait_empty(q_at_);
    FullBarrier& full = shared_.q_ring.full[q_at_.stage];
    if (lane() == 0) {
      full.arrive_and_expect_tx(sizeof(shared_.q[0]));
      for (int slab = 0; slab < kConfig.key_slabs(); ++slab) {
        const BoxLoad load{.map = &params_.q,
                           .shared = &shared_.q[q_at_.stage][slab * Shared::kQuerySlabBytes],
                           .full = &full,
                           .hint = L2Hint::EVICT_FIRST};
        load_box(load, slab * PrefillConfig::kSlabColumns,
                 tile.head_tile << params_.tile_heads_log2, tile.first_row + tile.first_token);
      }
    }
    __syncwarp();
    q_at_.advance();
  }

  __device__ void load_key_block(const Piece& piece) {
    const std::uint32_t holes = source_.holes(piece);
    shared_.key_ring.wait_empty(key_at_);
    FullBarrier& full = shared_.key_ring.full[key_at_.stage];
    if (announces_ && lane() == 0) {
      shared_.holes[key_at_.stage] = holes;
      full.arrive_and_expect_tx(Shared::kKeyBytes);
    }
    __syncwarp();
    source_.load_keys(piece, shared_.keys[key_at_.stage], full);
    key_at_.advance();
  }
  __device__ void load_value_block(const Piece& piece) {
    shared_.value_ring.wait_empty(value_at_);
    FullBarrier& full = shared_.value_ring.full[value_at_.stage];
    if (announces_ && lane() == 0) full.arrive_and_expect_tx(Shared::kValueBytes);
    __syncwarp();
    source_.load_values(piece, shared_.values[value_at_.stage], full);
    value_at_.advance();
  }

  const PrefillParams& params_;
  const Source source_;
  Shared& shared_;
  // The bytes of both halves. The other warp's may land before: the barrier's phase cannot end
  // without this arrival, and bytes are counted with a sign.
  const bool announces_;
  RingPosition<kConfig.key_stages> key_at_;
  RingPosition<kConfig.value_stages> value_at_;
  RingPosition<kConfig.q_buffers> q_at_;
  RingPosition<Shared::kTileRing> tile_at_;
};

}  // namespace quire::cuda::hopper
