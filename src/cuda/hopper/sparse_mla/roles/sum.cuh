// SPDX-License-Identifier: Apache-2.0
// The warpgroup that sums the right half of the values. It holds a tile's weights back until the next
// tile's scores are computed, so that its products run while the other warpgroup is at its softmax.
#pragma once

#include "cuda/hopper/sparse_mla/half_sums.cuh"
#include "cuda/hopper/sparse_mla/shared.cuh"
#include "cuda/hopper/sparse_mla/store_rows.cuh"

namespace quire::cuda::hopper {

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
      bool is_first = true;
      for (int left = num_tiles; left > 0; --left) {
        sum_values(is_first);
        is_first = false;
      }
      if (num_tiles != kNobody) store(num_tiles > 0);
      item_at_.advance();
    }
  }

 private:
  static constexpr SparseConfig kConfig = Variant::kConfig;
  static constexpr int kBoth = 2 * SparseConfig::kWarpgroup;

  __device__ static int thread() {
    return static_cast<int>(threadIdx.x % SparseConfig::kWarpgroup);
  }
  __device__ void take_over(float (&keep)[2]) {
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
    // Before the handover is given back: a signal is never a tile ahead of who waits for it. (Behind the
    // last tile there are no scores to wait for; racecheck follows this barrier where it does not the
    // arrival alone.)
    cutlass::arch::NamedBarrier::sync(kBoth, kScoresDone);
    cutlass::arch::NamedBarrier::arrive(kBoth, kHandoverEmpty);
  }

  __device__ void sum_values(bool is_first) {
    float keep[2];
    take_over(keep);
    shared_.right_ring.wait_full(summed_);
    fence_rows<Variant>();
    if (!is_first && __any_sync(0xffffffff, keep[0] != 1.0F || keep[1] != 1.0F)) {
      sums_.scale(keep);
    }
    sums_.start(weights_, shared_.right[summed_.stage], kConfig.slab_bytes(), is_first);
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
};

}  // namespace quire::cuda::hopper
