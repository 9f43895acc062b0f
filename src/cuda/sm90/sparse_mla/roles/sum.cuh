// SPDX-License-Identifier: Apache-2.0
// The warpgroup that sums the right half of the values. It holds a tile's weights back until the next
// tile's scores are computed, so that its products run while the other warpgroup is at its softmax.
#pragma once

#include "cuda/sm90/sparse_mla/row_softmax.cuh"
#include "cuda/sm90/sparse_mla/shared.cuh"
#include "cuda/sm90/sparse_mla/store_rows.cuh"

namespace quire::cuda::sm90::sparse_mla {

template <typename Variant> class SumRole {
 public:
  __device__ SumRole(const SparseParams& params, SparseShared<Variant>& shared)
      : params_(params), shared_(shared) {}

  __device__ void run() {
    while (true) {
      shared_.item_ring.wait_full(item_at_);
      const int num_tiles = note().num_tiles;
      if (num_tiles == kNoItem) return;
      // All of them, for what they read of the last item: racecheck does not follow one for its warp.
      shared_.item_ring.empty[0].arrive();
      if (num_tiles > 0) fence_tile();
      bool is_first = true;
      for (int left = num_tiles; left > 0; --left) {
        sum_values(is_first, left == 1);
        is_first = false;
      }
      if (num_tiles != kNobody) store(num_tiles > 0);
      item_at_.advance();
    }
  }

 private:
  static constexpr SparseConfig kConfig = Variant::kConfig;
  static constexpr int kBoth = 2 * SparseConfig::kWarpgroup;

  __device__ static int warp() { return thread() / 32; }
  __device__ static int thread() {
    return static_cast<int>(threadIdx.x % SparseConfig::kWarpgroup);
  }

  // The next tile's parts, each by a warp of its own. The left half is there first, before this tile's
  // weights are.
  __device__ void fence_tile() {
    fence_left();
    fence_others();
  }
  __device__ void fence_left() {
    if constexpr (kConfig.sum_fences()) {
      if (warp() == 0) fence_part(shared_.left_ring, shared_.left_fenced, fenced_.half);
    }
  }
  __device__ void fence_others() {
    if constexpr (kConfig.sum_fences()) {
      if (warp() == 1) fence_part(shared_.rope_ring, shared_.rope_fenced, fenced_.rope);
      if (warp() == 2) fence_part(shared_.right_ring, shared_.right_fenced, fenced_.half);
      fenced_.advance();
    }
  }
  template <int kStages>
  __device__ void fence_part(RingBarriers<kStages>& ring, EmptyBarrier (&fenced)[kStages],
                             const RingPosition<kStages>& at) const {
    ring.wait_full(at);
    cutlass::arch::fence_view_async_shared();
    __syncwarp();
    if (threadIdx.x % 32 == 0) fenced[at.stage].arrive();
  }

  __device__ void take_over(float (&keep)[2], bool is_last) {
    const auto& handover = shared_.handover;
    cutlass::arch::NamedBarrier::sync(kBoth, kHandoverFull);
#pragma unroll
    for (int step = 0; step < kConfig.keys / 16; ++step) {
      const uint4 words = handover.weights[step][thread()];
      weights_[4 * step] = words.x;
      weights_[4 * step + 1] = words.y;
      weights_[4 * step + 2] = words.z;
      weights_[4 * step + 3] = words.w;
    }
    const float2 kept = handover.keep[thread()];
    keep[0] = kept.x;
    keep[1] = kept.y;
    if (!is_last) fence_others();
    // Before the handover is given back: a signal is never a tile ahead of who waits for it. (Behind the
    // last tile there are no scores to wait for; racecheck follows this barrier where it does not the
    // arrival alone.)
    cutlass::arch::NamedBarrier::sync(kBoth, kScoresDone);
    cutlass::arch::NamedBarrier::arrive(kBoth, kHandoverEmpty);
  }

  __device__ void sum_values(bool is_first, bool is_last) {
    float keep[2];
    if (!is_last) fence_left();
    take_over(keep, is_last);
    wait_rows<Variant>(shared_.right_ring, shared_.right_fenced, summed_);
    if (!is_first && __any_sync(0xffffffff, keep[0] != 1.0F || keep[1] != 1.0F)) {
      sums_.scale(keep);
    }
    sums_.start(weights_, shared_.right[summed_.stage], kConfig.swizzle_column_bytes(), is_first);
    cute::warpgroup_wait<0>();
    sums_.wait_is_over();
    give_back<Variant>(shared_.right_ring.empty[summed_.stage]);
    summed_.advance();
  }

  __device__ ItemNote note() const {
    return read_note(shared_.notes[item_at_.phase]);
  }

  __device__ void store(bool has_keys) const {
    const ItemNote item = note();
    const StoreRows rows{
        .params = params_, .item = item, .first_column = SparseConfig::kHalfColumns};
    rows.store(sums_, has_keys ? shared_.handover.finish[item_at_.phase][thread()] : float2{});
  }

  const SparseParams& params_;
  SparseShared<Variant>& shared_;
  HalfSums sums_;
  std::uint32_t weights_[kConfig.keys / 4];
  RingPosition<1> item_at_;
  RingPosition<kConfig.stages> summed_;
  TilePlace<Variant> fenced_;  // the next tile to be fenced
};

}  // namespace quire::cuda::sm90::sparse_mla
