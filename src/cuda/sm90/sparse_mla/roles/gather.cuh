// SPDX-License-Identifier: Apache-2.0
// The warpgroup that fills the tiles: the left half of the latent columns, the rope columns, the right
// half. Its warps have rows of their own and meet only where a work tile begins.
#pragma once

#include "cuda/common/pipeline/tma.cuh"
#include "cuda/common/thread/thread.cuh"
#include "cuda/sm90/sparse_mla/fill_decoded.cuh"
#include "cuda/sm90/sparse_mla/fill_paired.cuh"
#include "cuda/sm90/sparse_mla/fill_whole.cuh"
#include "cuda/sm90/sparse_mla/row_fill.cuh"
#include "cuda/sm90/sparse_mla/row_finder.cuh"

namespace quire::cuda::sm90::sparse_mla {

template <typename Variant> class GatherRole {
 public:
  __device__ GatherRole(const SparseParams& params, SparseShared<Variant>& shared)
      : params_(params),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x % SparseConfig::kWarpgroup)),
        scan_(params),
        fill_(shared) {}

  __device__ void run() {
    for (Walk walk{params_.work}; !walk.is_over(); walk.advance()) {
      const int i = walk.work_tile();
      const WorkTile work_tile(params_.work, i);
      scan_.place(work_tile.token);
      if (scan_.sequence() < 0) {
        publish(i, kNobody);
        continue;
      }
      const int2 tiles =
          scan_.count_tiles(work_tile, shared_.ends[work_tile_at_.phase], kGatherers);
      if (tiles.x + tiles.y == 0) {
        publish(i, 0);
        continue;
      }
      // The first work tile's queries come beside its first rows. Those of later work tiles have to wait until
      // the work tile before is done with the place, which a tile need not.
      bool is_published = walk.is_first();
      if (is_published) publish(i, tiles.x + tiles.y);
#pragma unroll Variant::kConfig.gather_copies()
      for (int stream = 0; stream < 2; ++stream) {
        const TileRun run{.stream = params_.streams[stream],
                          .limits = scan_.limits(stream),
                          .token = work_tile.token,
                          .sequence = scan_.sequence(),
                          .first_tile = scan_.first_tile(work_tile, stream),
                          .num_tiles = stream == 0 ? tiles.x : tiles.y,
                          .is_backwards = walk.is_backwards};
        if (run.num_tiles == 0) continue;
        fill_.begin(run);
        for (int index = Fill::kFirstTurn; index < run.num_tiles; ++index) {
          fill_.turn(index, [&] {
            if (index != 0 || is_published) return;
            publish(i, tiles.x + tiles.y);
            is_published = true;
          });
        }
      }
    }
    publish(0, kNoWorkTile);
  }

 private:
  using Fill = RowFill<Variant>;
  using Walk = WorkTileWalk<Variant::kConfig.blocks>;
  static constexpr int kKeys = Variant::kConfig.keys;

  // The work tile's queries, and how many tiles it has.
  __device__ void publish(int index, int num_tiles) {
    if (thread_ == 0) {
      const WorkTile work_tile(params_.work, index);
      shared_.work_tile_ring.wait_empty(work_tile_at_);
      shared_.work_tiles[work_tile_at_.phase] = {.num_tiles = num_tiles,
                                                 .split = work_tile.split,
                                                 .token = work_tile.token,
                                                 .first_head = work_tile.first_head};
      FullBarrier& full = shared_.work_tile_ring.full[0];
      if (num_tiles <= 0) {
        full.arrive();
      } else {
        full.arrive_and_expect_tx(sizeof(shared_.q));
        for (int swizzle_column = 0; swizzle_column < Variant::kConfig.swizzle_columns();
             ++swizzle_column) {
          load_box({.map = &params_.q, .shared = shared_.q[swizzle_column], .full = &full},
                   swizzle_column * SparseConfig::kSwizzleColumnWidth, work_tile.first_head,
                   work_tile.token);
        }
      }
    }
    work_tile_at_.advance();
  }

  const SparseParams& params_;
  SparseShared<Variant>& shared_;
  int thread_;
  WorkTileScan<kKeys> scan_;
  Fill fill_;
  RingPosition<1> work_tile_at_;
};

}  // namespace quire::cuda::sm90::sparse_mla
