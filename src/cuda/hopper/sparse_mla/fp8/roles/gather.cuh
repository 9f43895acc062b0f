// SPDX-License-Identifier: Apache-2.0
// The warpgroup that sends for rows: a lane finds its own and has the copy engine bring all of it. Each
// warp has 16 rows of a tile.
#pragma once

#include "cuda/hopper/sparse_mla/copy_raw.cuh"
#include "cuda/hopper/sparse_mla/fp8/shared.cuh"
#include "cuda/hopper/sparse_mla/row_finder.cuh"
#include "cuda/hopper/sparse_mla/work_item.cuh"
#include "cuda/hopper/tile/bulk_copy.cuh"

namespace quire::cuda::hopper {

template <typename Variant> class GatherFp8Role {
 public:
  __device__ GatherFp8Role(const SparseParams& params, Fp8Shared<Variant>& shared)
      : params_(params), shared_(shared) {}

  __device__ void run() {
    const int items = params_.work.items();
    for (int i = static_cast<int>(blockIdx.x); i < items; i += static_cast<int>(gridDim.x)) {
      const WorkItem item(params_.work, i);
      place(item.token);
      if (sequence_ < 0) {
        publish(item, kNobody, 0);
        continue;
      }
      const int2 tiles = count_tiles(item);
      publish(item, tiles.x + tiles.y, tiles.x);
      fill<0>(item, main_, tiles.x);
      fill<1>(item, extra_, tiles.y);
    }
    publish(WorkItem(params_.work, 0), kNoItem, 0);
  }

 private:
  static constexpr int kKeys = Fp8Config::kKeys;
  static constexpr int kRows = Fp8Config::kWarpKeys;
  static constexpr int kScans = 16;  // indices that a thread reads at a time

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static int thread() { return static_cast<int>(threadIdx.x % Fp8Config::kWarpgroup); }
  __device__ static int warp() { return thread() / 32; }

  __device__ void place(int token) {
    const auto batch = static_cast<int>(params_.streams[0].rows.batch);
    sequence_ = batch == 0 ? -1 : find_sequence(params_.row_offsets, batch, token);
    if (sequence_ < 0) return;
    const std::uint32_t added = params_.row_offsets[sequence_ + 1] - params_.row_offsets[sequence_];
    main_.place(params_.streams[0], token, sequence_, added);
    extra_.place(params_.streams[1], token, sequence_, added);
  }
  __device__ int first_tile(const WorkItem& item, int stream) const {
    return stream == 0 ? item.first_tile : max(item.first_tile - params_.work.first_tiles, 0);
  }

  // Tiles of each stream up to the last slot that names a position: what follows is not gathered.
  __device__ int2 count_tiles(const WorkItem& item) {
    const int border = params_.work.first_tiles;
    const int last = item.first_tile + params_.work.piece_tiles;
    auto& ends = shared_.ends[item_at_.stage];
    for (int stream = 0; stream < 2; ++stream) {
      const int first = first_tile(item, stream);
      const int end = stream == 0 ? min(last, border) : last - border;
      const int found = __reduce_max_sync(0xffffffff, last_tile(stream, item.token, first, end));
      if (lane() == 0) ends[stream][warp()] = max(found - first, 0);
    }
    cutlass::arch::NamedBarrier::sync(Fp8Config::kWarpgroup, kFp8Gatherers);
    const auto most = [](const int(&of)[4]) { return max(max(of[0], of[1]), max(of[2], of[3])); };
    return {most(ends[0]), most(ends[1])};
  }
  // One past the last tile of [first, end) in which this thread's slots name a position; 0: none.
  __device__ int last_tile(int stream, int token, int first, int end) const {
    const GatherStream& from = params_.streams[stream];
    const std::int32_t* indices = from.indices + token * from.indices_stride;
    const SlotLimits limits = stream == 0 ? main_ : extra_;
    const int slots = min(limits.slots, end * kKeys);
    int found = 0;
    for (int slot = first * kKeys + thread(); slot < slots;
         slot += kScans * Fp8Config::kWarpgroup) {
      std::uint32_t positions[kScans];
#pragma unroll
      for (int i = 0; i < kScans; ++i) {
        const int at = slot + i * Fp8Config::kWarpgroup;
        positions[i] = at < slots ? static_cast<std::uint32_t>(__ldg(indices + at)) : ~0U;
      }
#pragma unroll
      for (int i = 0; i < kScans; ++i) {
        if (positions[i] < limits.keys) {
          found = (slot + i * Fp8Config::kWarpgroup) / kKeys + 1;
        }
      }
    }
    return found;
  }

  __device__ void publish(const WorkItem& item, int num_tiles, int first_tiles) {
    if (thread() == 0) {
      shared_.item_ring.wait_empty(item_at_);
      shared_.notes[item_at_.stage] = {.item = {.num_tiles = num_tiles,
                                                .index = item.index,
                                                .token = item.token,
                                                .first_head = item.first_head},
                                       .first_tiles = first_tiles};
      shared_.item_ring.full[item_at_.stage].arrive();
    }
    item_at_.advance();
  }

  // Rows of two tiles at a time, one by each half of a warp: what is looked up has twice the time to
  // come. Scales are looked up beside them where those have a tensor of their own.
  template <int kStream>
  __device__ void fill(const WorkItem& item, const SlotLimits& limits, int num_tiles) {
    if (num_tiles == 0) return;
    const GatherStream& stream = params_.streams[kStream];
    const TileRun run{.stream = stream,
                      .limits = limits,
                      .token = item.token,
                      .sequence = sequence_,
                      .first_tile = first_tile(item, kStream),
                      .num_tiles = num_tiles};
    const int key = lane() / kRows * kKeys + warp() * kRows + lane() % kRows;
    const bool finds_scales = stream.rows.row_format.parts[0].scale_source == ScaleSource::plane;
    RowFinder rows;
    rows.begin(run, PagePlaces::of_rows(stream.rows, run.sequence), kKeys, key);
    ScaleFinder scales(PagePlaces::of_scales(stream.rows.scales, run.sequence));
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
    shared_.row_ring.wait_empty(row_at_);
    if (found != kAll) clear_rows(stage, kAll & ~found);
    FullBarrier& full = shared_.row_ring.full[stage];
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
    }
    cutlass::arch::cpasync_barrier_arrive_noinc(reinterpret_cast<std::uint64_t*>(&full));
  }
  // Weights of absent rows are 0, but their bytes might be NaN.
  __device__ void clear_rows(int stage, std::uint32_t absent) {
    for (; absent != 0; absent &= absent - 1) {
      const int key = warp() * kRows + __ffs(static_cast<int>(absent)) - 1;
      auto* pieces = reinterpret_cast<uint4*>(shared_.rows[stage][key]);
      for (int i = lane(); i < Fp8Config::kRowStride / 16; i += 32) pieces[i] = {};
    }
    // The copy engine writes here again.
    cutlass::arch::fence_view_async_shared();
    __syncwarp();
  }

  const SparseParams& params_;
  Fp8Shared<Variant>& shared_;
  int sequence_ = -1;  // of the item's token; -1: nobody's
  SlotLimits main_;
  SlotLimits extra_;
  RingPosition<2> item_at_;
  RingPosition<Variant::kConfig.stages> row_at_;
};

}  // namespace quire::cuda::hopper
