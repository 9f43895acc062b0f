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
        fill_(params, shared) {}

  __device__ void run() {
    const int items = params_.work.items();
    for (int i = static_cast<int>(blockIdx.x); i < items; i += static_cast<int>(gridDim.x)) {
      const WorkItem item(params_.work, i);
      range_.place(params_, item.token);
      range_.first_tile = item.first_tile;
      range_.num_tiles = range_.sequence < 0 ? kNobody : count_tiles();
      if (range_.num_tiles <= 0) {
        publish(i);
      } else {
        gather(i);
      }
    }
    range_.num_tiles = kNoItem;
    publish(0);
  }

 private:
  static constexpr int kKeys = Variant::kConfig.keys;
  static constexpr int kScans = 8;  // indices that a thread reads at a time

  __device__ void sync() const {
    cutlass::arch::NamedBarrier::sync(SparseConfig::kWarpgroup, kGatherers);
  }

  // Tiles up to the last slot that names a position: what follows is not gathered.
  __device__ int count_tiles() {
    const int border = params_.work.first_tiles;
    const int last = range_.first_tile + params_.work.piece_tiles;
    const int extra = last_tile(params_.streams[1], max(range_.first_tile - border, 0),
                                last - border, range_.extra_limit, range_.extra_keys);
    const int main = last_tile(params_.streams[0], range_.first_tile, min(last, border),
                               range_.limit, range_.num_keys);
    int* ends = shared_.ends[item_at_.phase];
    const int end =
        __reduce_max_sync(0xffffffff, extra > 0 ? extra + border : main) - range_.first_tile;
    if (thread_ % 32 == 0) ends[thread_ / 32] = end;
    sync();
    return max(max(max(ends[0], ends[1]), max(ends[2], ends[3])), 0);
  }
  // One past the last tile of [first, end) in which this thread's slots name a position; 0: none.
  __device__ int last_tile(const GatherStream& stream, int first, int end, int limit,
                           std::uint32_t keys) const {
    const std::int32_t* indices = stream.indices + range_.token * stream.indices_stride;
    const int slots = min(limit, end * kKeys);
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
        if (positions[i] < keys) {
          found = (slot + i * SparseConfig::kWarpgroup) / kKeys + 1;
        }
      }
    }
    return found;
  }

  // The first item's queries come beside its first rows. Those of later items have to wait until the
  // item before is done with the place, which a tile need not.
  __device__ void gather(int item) {
    const int when = item == static_cast<int>(blockIdx.x) ? Fill::kFirstTurn : 0;
    for (int index = Fill::kFirstTurn; index < range_.num_tiles; ++index) {
      fill_.turn(range_, index);
      if (index == when) publish(item);
    }
  }

  // The item's queries, and how many tiles it has.
  __device__ void publish(int index) {
    if (thread_ == 0) {
      const WorkItem item(params_.work, index);
      shared_.item_ring.wait_empty(item_at_);
      shared_.notes[item_at_.phase] = {.num_tiles = range_.num_tiles,
                                       .index = item.index,
                                       .token = item.token,
                                       .first_head = item.first_head};
      FullBarrier& full = shared_.item_ring.full[0];
      if (range_.num_tiles <= 0) {
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

  using Fill = RowFill<Variant>;

  const SparseParams& params_;
  SparseShared<Variant>& shared_;
  int thread_;
  SlotRange range_;
  Fill fill_;
  RingPosition<1> item_at_;
};

}  // namespace quire::cuda::hopper
