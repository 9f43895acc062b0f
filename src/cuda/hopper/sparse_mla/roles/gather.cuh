// SPDX-License-Identifier: Apache-2.0
// The warpgroup that fills the tiles: the left half of the latent columns, the rope columns, the right
// half. Its warps have rows of their own and meet only where an item begins.
#pragma once

#include "cuda/hopper/sparse_mla/fill_copied.cuh"
#include "cuda/hopper/sparse_mla/fill_decoded.cuh"
#include "cuda/hopper/sparse_mla/work_item.cuh"
#include "cuda/hopper/tile/block.cuh"
#include "cuda/hopper/tile/tma.cuh"

namespace quire::cuda::hopper {

template <typename Variant> class GatherRole {
 public:
  __device__ GatherRole(const SparseParams& params, SparseShared<Variant>& shared)
      : params_(params),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x % SparseConfig::kWarpgroup)),
        fill_(shared) {}

  __device__ void run() {
    const int items = params_.work.items();
    for (int i = static_cast<int>(blockIdx.x); i < items; i += static_cast<int>(gridDim.x)) {
      const WorkItem item(params_.work, i);
      place(item.token);
      if (sequence_ < 0) {
        publish(i, kNobody);
        continue;
      }
      const int2 tiles = count_tiles(item);
      if (tiles.x + tiles.y == 0) {
        publish(i, 0);
        continue;
      }
      // The first item's queries come beside its first rows. Those of later items have to wait until
      // the item before is done with the place, which a tile need not.
      bool is_published = i == static_cast<int>(blockIdx.x);
      if (is_published) publish(i, tiles.x + tiles.y);
      for (int stream = 0; stream < 2; ++stream) {
        const TileRun run{.stream = params_.streams[stream],
                          .limits = limits(stream),
                          .token = item.token,
                          .sequence = sequence_,
                          .first_tile = first_tile(item, stream),
                          .num_tiles = stream == 0 ? tiles.x : tiles.y};
        if (run.num_tiles == 0) continue;
        fill_.begin(run);
        for (int index = Fill::kFirstTurn; index < run.num_tiles; ++index) {
          fill_.turn(index);
          if (index == 0 && !is_published) {
            publish(i, tiles.x + tiles.y);
            is_published = true;
          }
        }
      }
    }
    publish(0, kNoItem);
  }

 private:
  using Fill = RowFill<Variant>;
  static constexpr int kKeys = Variant::kConfig.keys;
  static constexpr int kScans = 16;  // indices that a thread reads at a time

  __device__ void place(int token) {
    const auto batch = static_cast<int>(params_.streams[0].rows.batch);
    sequence_ = batch == 0 ? -1 : find_sequence(params_.row_offsets, batch, token);
    if (sequence_ < 0) return;
    const std::uint32_t added = params_.row_offsets[sequence_ + 1] - params_.row_offsets[sequence_];
    main_.place(params_.streams[0], token, sequence_, added);
    extra_.place(params_.streams[1], token, sequence_, added);
  }
  __device__ SlotLimits limits(int stream) const { return stream == 0 ? main_ : extra_; }
  __device__ int first_tile(const WorkItem& item, int stream) const {
    return stream == 0 ? item.first_tile : max(item.first_tile - params_.work.first_tiles, 0);
  }

  // Tiles of each stream up to the last slot that names a position: what follows is not gathered.
  __device__ int2 count_tiles(const WorkItem& item) {
    const int border = params_.work.first_tiles;
    const int last = item.first_tile + params_.work.piece_tiles;
    auto& ends = shared_.ends[item_at_.phase];
    for (int stream = 0; stream < 2; ++stream) {
      const int first = first_tile(item, stream);
      const int end = stream == 0 ? min(last, border) : last - border;
      const int found = __reduce_max_sync(0xffffffff, last_tile(stream, item.token, first, end));
      if (thread_ % 32 == 0) ends[stream][thread_ / 32] = max(found - first, 0);
    }
    cutlass::arch::NamedBarrier::sync(SparseConfig::kWarpgroup, kGatherers);
    const auto most = [](const int(&of)[4]) { return max(max(of[0], of[1]), max(of[2], of[3])); };
    return {most(ends[0]), most(ends[1])};
  }
  // One past the last tile of [first, end) in which this thread's slots name a position; 0: none.
  __device__ int last_tile(int stream, int token, int first, int end) const {
    const GatherStream& from = params_.streams[stream];
    const std::int32_t* indices = from.indices + token * from.indices_stride;
    const SlotLimits limits = this->limits(stream);
    const int slots = min(limits.slots, end * kKeys);
    int found = 0;
    for (int slot = first * kKeys + thread_; slot < slots;
         slot += kScans * SparseConfig::kWarpgroup) {
      std::uint32_t positions[kScans];
#pragma unroll
      for (int i = 0; i < kScans; ++i) {
        const int at = slot + i * SparseConfig::kWarpgroup;
        positions[i] = at < slots ? static_cast<std::uint32_t>(__ldg(indices + at)) : ~0U;
      }
#pragma unroll
      for (int i = 0; i < kScans; ++i) {
        if (positions[i] < limits.keys) {
          found = (slot + i * SparseConfig::kWarpgroup) / kKeys + 1;
        }
      }
    }
    return found;
  }

  // The item's queries, and how many tiles it has.
  __device__ void publish(int index, int num_tiles) {
    if (thread_ == 0) {
      const WorkItem item(params_.work, index);
      shared_.item_ring.wait_empty(item_at_);
      shared_.notes[item_at_.phase] = {.num_tiles = num_tiles,
                                       .index = item.index,
                                       .token = item.token,
                                       .first_head = item.first_head};
      FullBarrier& full = shared_.item_ring.full[0];
      if (num_tiles <= 0) {
        full.arrive();
      } else {
        full.arrive_and_expect_tx(sizeof(shared_.q));
        for (int slab = 0; slab < SparseConfig::kSlabs; ++slab) {
          load_box({.map = &params_.q, .shared = shared_.q[slab], .full = &full},
                   slab * SparseConfig::kSlabColumns, item.first_head, item.token);
        }
      }
    }
    item_at_.advance();
  }

  const SparseParams& params_;
  SparseShared<Variant>& shared_;
  int thread_;
  int sequence_ = -1;  // of the item's token; -1: nobody's
  SlotLimits main_;
  SlotLimits extra_;
  Fill fill_;
  RingPosition<1> item_at_;
};

}  // namespace quire::cuda::hopper
