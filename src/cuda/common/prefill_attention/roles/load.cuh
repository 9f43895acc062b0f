// SPDX-License-Identifier: Apache-2.0
// Four warps: the first takes tiles off the schedule, tells everybody, and loads q and half of
// every block of K; the second the other half; the others do the same for V. They run ahead of the
// consumers, across tiles. Where K and V come from the source knows (paged_source.cuh).
#pragma once

#include "cuda/common/pipeline/tma.cuh"
#include "cuda/common/prefill_attention/stage_load.cuh"
#include "cuda/common/thread/thread.cuh"

namespace quire::cuda {

template <PrefillConfig kConfig, typename Source> class PrefillLoad {
 public:
  using Shared = PrefillShared<kConfig>;
  using Piece = typename Source::Piece;
  static constexpr Conversion conversion(bool converts) {
    return converts ? Conversion::to_f16 : Conversion::none;
  }
  using KeyLoad = StageLoad<kConfig, conversion(kConfig.converts_keys()),
                            kConfig.key_swizzle_columns(), kConfig.key_stages>;
  using ValueLoad = StageLoad<kConfig, conversion(kConfig.converts_values()),
                              kConfig.value_swizzle_columns(), kConfig.value_stages>;

  __device__ PrefillLoad(const PrefillParams& params, const typename Source::Params& source,
                         Shared& shared, int half)
      : params_(params), source_(source, half), shared_(shared), half_(half) {}

  // Tiles, q and keys.
  __device__ void lead() {
    KeyLoad keys(shared_.keys, shared_.key_ring, shared_.keys_ready, half_);
    PrefillSchedule<kConfig> schedule(params_);
    for (PrefillTile tile = schedule.next(); publish(tile);) {
      Piece piece = source_.find(tile, tile.end_block - 1);
      PrefillTile following{.sequence = -1};
      for (int block = tile.end_block - 1; block >= tile.first_block; --block) {
        const Piece next = source_.find(tile, block - 1);  // arrives while this one waits
        load_keys(keys, piece);
        if (block == tile.end_block - 1) {
          keys.convert();
          load_queries(tile);  // behind the keys: its place may be taken by the tile before
          following = schedule.next();
        }
        piece = next;
      }
      keys.convert();
      tile = following;
    }
  }

  __device__ void load_keys() {
    KeyLoad keys(shared_.keys, shared_.key_ring, shared_.keys_ready, half_);
    for (PrefillTile tile = next_tile(); tile.sequence >= 0; tile = next_tile()) {
      Piece piece = source_.find(tile, tile.end_block - 1);
      for (int block = tile.end_block - 1; block >= tile.first_block; --block) {
        const Piece next = source_.find(tile, block - 1);
        load_keys(keys, piece);
        piece = next;
      }
      keys.convert();
    }
  }

  __device__ void load_values() {
    ValueLoad values(shared_.values, shared_.value_ring, shared_.values_ready, half_);
    for (PrefillTile tile = next_tile(); tile.sequence >= 0; tile = next_tile()) {
      Piece piece = source_.find(tile, tile.end_block - 1);
      for (int block = tile.end_block - 1; block >= tile.first_block; --block) {
        const Piece next = source_.find(tile, block - 1);
        load_values(values, piece);
        piece = next;
      }
      values.convert();
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
  __device__ PrefillTile next_tile() { return shared_.take_tile(tile_at_); }

  __device__ void load_queries(const PrefillTile& tile) {
#pragma unroll
    for (int row = 0; row < kConfig.rows(); row += kConfig.part_rows()) {
      RingBarriers<kConfig.q_buffers>& ring = shared_.q_ring(row);
      ring.wait_empty(q_at_);
      if (lane() == 0) load_query_part(tile, row, ring.full[q_at_.stage]);
      __syncwarp();
    }
    q_at_.advance();
  }
  // `row`: the part's first.
  __device__ void load_query_part(const PrefillTile& tile, int row, FullBarrier& full) {
    const int heads_log2 = params_.tile_heads_log2;
    const int head = (tile.head_tile << heads_log2) + (row & ((1 << heads_log2) - 1));
    const int token = tile.first_row + tile.first_token + (row >> heads_log2);
    full.arrive_and_expect_tx(sizeof(shared_.q[0]) / kConfig.q_parts);
    for (int swizzle_column = 0; swizzle_column < kConfig.query_swizzle_columns();
         ++swizzle_column) {
      const BoxLoad load{
          .map = &params_.q,
          .shared = &shared_.q[q_at_.stage]
                              [swizzle_column * Shared::kQuerySwizzleColumnBytes + row * kRowBytes],
          .full = &full,
          .hint = L2Hint::EVICT_FIRST};
      load_box(load, swizzle_column * PrefillConfig::kSwizzleColumnWidth, head, token);
    }
  }

  __device__ void load_keys(KeyLoad& keys, const Piece& piece) {
    const std::uint32_t holes = source_.holes(piece);
    keys.load([&](int at, std::byte* stage, FullBarrier& full) {
      if (half_ == 0 && lane() == 0) shared_.holes[at] = holes;
      announce(full, Shared::kCopiedKeyBytes);
      source_.load_keys(piece, stage, full);
    });
  }
  __device__ void load_values(ValueLoad& values, const Piece& piece) {
    values.load([&](int, std::byte* stage, FullBarrier& full) {
      announce(full, Shared::kCopiedValueBytes);
      source_.load_values(piece, stage, full);
    });
  }
  // By the first half, the bytes of both. The other's may land before: the barrier's phase cannot
  // end without this arrival, and bytes are counted with a sign.
  __device__ void announce(FullBarrier& full, int bytes) {
    if (half_ == 0 && lane() == 0) full.arrive_and_expect_tx(bytes);
    __syncwarp();
  }

  const PrefillParams& params_;
  const Source source_;
  Shared& shared_;
  const int half_;
  RingPosition<kConfig.q_buffers> q_at_;
  RingPosition<Shared::kTileRing> tile_at_;
};

}  // namespace quire::cuda
