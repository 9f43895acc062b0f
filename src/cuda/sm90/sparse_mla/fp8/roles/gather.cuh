// SPDX-License-Identifier: Apache-2.0
// The warpgroup that sends for rows: a lane finds its own and has TMA bring all of it. Each
// warp has 16 rows of a tile.
#pragma once

#include "cuda/common/pipeline/tma.cuh"
#include "cuda/sm90/sparse_mla/fp8/shared.cuh"
#include "cuda/sm90/sparse_mla/row_fill.cuh"
#include "cuda/sm90/sparse_mla/row_finder.cuh"

namespace quire::cuda::sm90::sparse_mla {

template <typename Variant> class GatherFp8Role {
 public:
  __device__ GatherFp8Role(const SparseParams& params, Fp8Shared<Variant>& shared)
      : params_(params), shared_(shared), scan_(params) {}

  __device__ void run() {
    const int work_tiles = params_.work.work_tiles();
    for (int i = static_cast<int>(blockIdx.x); i < work_tiles; i += static_cast<int>(gridDim.x)) {
      const WorkTile work_tile(params_.work, i);
      scan_.place(work_tile.token);
      if (scan_.sequence() < 0) {
        publish(work_tile, kNobody, 0);
        continue;
      }
      const int2 tiles =
          scan_.count_tiles(work_tile, shared_.ends[work_tile_at_.stage], kFp8Gatherers);
      publish(work_tile, tiles.x + tiles.y, tiles.x);
      fill<0>(work_tile, tiles.x);
      fill<1>(work_tile, tiles.y);
    }
    publish(WorkTile(params_.work, 0), kNoWorkTile, 0);
  }

 private:
  static constexpr int kKeys = Fp8Config::kKeys;
  static constexpr int kRows = Fp8Config::kWarpKeys;

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static int thread() { return static_cast<int>(threadIdx.x % Fp8Config::kWarpgroup); }
  __device__ static int warp() { return thread() / 32; }

  __device__ void publish(const WorkTile& work_tile, int num_tiles, int first_tiles) {
    if (thread() == 0) {
      shared_.work_tile_ring.wait_empty(work_tile_at_);
      shared_.work_tiles[work_tile_at_.stage] = {.work_tile = {.num_tiles = num_tiles,
                                                               .split = work_tile.split,
                                                               .token = work_tile.token,
                                                               .first_head = work_tile.first_head},
                                                 .first_tiles = first_tiles};
      shared_.work_tile_ring.full[work_tile_at_.stage].arrive();
    }
    work_tile_at_.advance();
  }

  // Rows of two tiles at a time, one by each half of a warp: what is looked up has twice the time to
  // come. Scales are looked up beside them where those have a tensor of their own.
  template <int kStream> __device__ void fill(const WorkTile& work_tile, int num_tiles) {
    if (num_tiles == 0) return;
    const GatherStream& stream = params_.streams[kStream];
    const TileRun run{.stream = stream,
                      .limits = scan_.limits(kStream),
                      .token = work_tile.token,
                      .sequence = scan_.sequence(),
                      .first_tile = scan_.first_tile(work_tile, kStream),
                      .num_tiles = num_tiles};
    const int key = lane() / kRows * kKeys + warp() * kRows + lane() % kRows;
    const bool finds_scales = stream.rows.row_format.parts[0].scale_source == ScaleSource::plane;
    RowFinder rows;
    rows.begin(run, PagePlaces::of_rows(stream, run.sequence), kKeys, key);
    ScaleFinder scales(PagePlaces::of_scales(stream, run.sequence));
    constexpr int kAtOnce = 32 / kRows;
    for (int tile = -2 * kAtOnce; tile < num_tiles; tile += kAtOnce) {
      FoundRow found{.bytes = stream.rows.row_format.row_bytes, .has_scale = finds_scales};
      found.row = rows.step(kAtOnce * kKeys, [&](auto... place) {
        if (finds_scales) scales.step(place...);
      });
      found.scale = scales.found();
      for (int half = 0; half < kAtOnce && tile >= 0 && tile + half < num_tiles; ++half) {
        send_for(found, half);
        row_at_.advance();
      }
    }
  }

  // What a lane has found.
  struct FoundRow {
    const std::byte* row = nullptr;
    const std::byte* scale = nullptr;
    int bytes = 0;
    bool has_scale = false;
  };
  __device__ void send_for(const FoundRow& lanes, int half) {
    const int stage = row_at_.stage;
    constexpr std::uint32_t kAll = (1U << kRows) - 1;
    const std::uint32_t found =
        __ballot_sync(0xffffffff, lanes.row != nullptr) >> (half * kRows) & kAll;
    shared_.rows_empty[stage][warp()].wait(row_at_.phase ^ 1);
    if (found != kAll) clear_rows(stage, kAll & ~found, half);
    FullBarrier& full = shared_.rows_full[stage];
    if (lane() == 0) {
      shared_.masks[stage][warp()] = static_cast<std::uint16_t>(found);
      full.arrive_and_expect_tx(__popc(found) * lanes.bytes);
    }
    __syncwarp();
    if (lane() / kRows != half) return;
    const int key = warp() * kRows + lane() % kRows;
    if (lanes.row != nullptr) {
      load_bytes({.from = lanes.row,
                  .shared = shared_.rows[stage][key],
                  .bytes = lanes.bytes,
                  .full = &full,
                  .hint = L2Hint::EVICT_NORMAL});
    }
    if (lanes.has_scale) {
      copy_word(&shared_.row_scales[stage][key], lanes.scale, lanes.scale != nullptr);
      cutlass::arch::cpasync_barrier_arrive_noinc(reinterpret_cast<std::uint64_t*>(&full));
    } else {
      full.arrive();
    }
  }
  // Weights of absent rows are 0, but their bytes might be NaN. By the lanes that arrive.
  __device__ void clear_rows(int stage, std::uint32_t absent, int half) {
    if (lane() / kRows != half) return;
    for (; absent != 0; absent &= absent - 1) {
      const int key = warp() * kRows + __ffs(static_cast<int>(absent)) - 1;
      auto* chunks = reinterpret_cast<uint4*>(shared_.rows[stage][key]);
      for (int i = lane() % kRows; i < Fp8Config::kRowStride / 16; i += kRows) chunks[i] = {};
    }
    // TMA writes here again.
    cutlass::arch::fence_view_async_shared();
  }

  const SparseParams& params_;
  Fp8Shared<Variant>& shared_;
  WorkTileScan<kKeys> scan_;
  RingPosition<2> work_tile_at_;
  RingPosition<Variant::kConfig.stages> row_at_;
};

}  // namespace quire::cuda::sm90::sparse_mla
