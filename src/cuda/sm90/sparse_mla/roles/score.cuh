// SPDX-License-Identifier: Apache-2.0
// The warpgroup that computes scores and weights, and sums the left half of the values.
//
//   tile t    weights(t) │ hand over │ sums += weights(t) · left(t) ┐ both run together,
//                                    │ scores(t + 1) = q · row      ┘ one after the other
//
// The other warpgroup's products wait until these are done, or until they wait for rows themselves.
#pragma once

#include "cuda/common/thread/thread.cuh"
#include "cuda/sm90/sparse_mla/row_softmax.cuh"
#include "cuda/sm90/sparse_mla/shared.cuh"

namespace quire::cuda::sm90::sparse_mla {

template <typename Variant> class ScoreRole {
 public:
  __device__ ScoreRole(const SparseParams& params, SparseShared<Variant>& shared)
      : params_(params), shared_(shared) {}

  __device__ void run() {
    while (true) {
      shared_.work_tile_ring.wait_full(work_tile_at_);
      tiles_left_ = info().num_tiles;
      if (tiles_left_ == kNoWorkTile) return;
      softmax_.reset();
      if (tiles_left_ > 0) {
        attend();
      } else {
        arrive(shared_.work_tile_ring.empty[0]);
        if (tiles_left_ == 0) finish();
      }
      if (tiles_left_ != kNobody) {
        const WorkTileInfo work_tile = info();
        const StoreRows rows{.params = params_, .work_tile = work_tile, .first_column = 0};
        rows.store(sums_, shared_.handover.finish[work_tile_at_.phase][thread()]);
      }
      work_tile_at_.advance();
    }
  }

 private:
  static constexpr SparseConfig kConfig = Variant::kConfig;
  using Scores = Wgmma<DType::bf16, kConfig.keys>;

  // Once a warp, when all of it is done with what the barrier guards.
  __device__ void arrive(EmptyBarrier& empty) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) empty.arrive();
  }

  __device__ WorkTileInfo info() const {
    return read_info(shared_.work_tiles[work_tile_at_.phase]);
  }
  __device__ static int thread() {
    return static_cast<int>(threadIdx.x % SparseConfig::kWarpgroup);
  }

  __device__ void attend() {
    start_scores(false);
    cute::warpgroup_wait<0>();
    pin(scores_);
    end_scores(tiles_left_ == 1);
    bool is_first = true;
    for (; tiles_left_ > 0; --tiles_left_) {
      float keep[2];
      const bool stays = weigh(keep);
      if (tiles_left_ == 1) finish();
      hand_over(keep);
      if (!stays && !is_first) sums_.scale(keep);
      sum_values(is_first);
      is_first = false;
    }
  }

  // The other warpgroup may have the tensor cores.
  __device__ static void yield() {
    cutlass::arch::NamedBarrier::arrive(2 * SparseConfig::kWarpgroup, kScoresDone);
  }

  // Products of a tile: left columns, rope, right columns, in the order in which they come. True: the
  // right ones were late, and the tensor cores are the other warpgroup's already; its products free the
  // place of the next right columns. Not where it waits for rows itself, to fence them.
  __device__ bool start_scores(bool may_yield) {
    cute::warpgroup_arrive();
    const std::uint64_t q = opaque(without_rank(tile_descriptor(shared_.q[0])));
    constexpr int kQuerySwizzleColumn = kQuerySwizzleColumnBytes >> 4;
    constexpr int kSwizzleColumn = kConfig.swizzle_column_bytes() >> 4;
    wait_rows<Variant>(shared_.left_ring, shared_.left_fenced, scored_.half);
    const std::uint64_t left = without_rank(tile_descriptor(shared_.left[scored_.half.stage]));
#pragma unroll
    for (int swizzle_column = 0; swizzle_column < SparseConfig::kHalfSwizzleColumns;
         ++swizzle_column) {
      multiply_rows<Scores>(q + swizzle_column * kQuerySwizzleColumn,
                            left + swizzle_column * kSwizzleColumn, scores_, swizzle_column == 0);
    }
    // The mask's writer arrived here; whoever fenced passed that on, which racecheck does not follow.
    if constexpr (kConfig.sum_fences()) shared_.left_ring.wait_full(scored_.half);
#pragma unroll
    for (int i = 0; i < kConfig.keys / 32; ++i) {
      // By the lane that gives the place back: racecheck then sees the order.
      const bool reads = threadIdx.x % 32 == 0;
      mask_[i] = __shfl_sync(0xffffffff, reads ? shared_.masks.word(scored_.half.stage, i) : 0, 0);
    }
    if constexpr (kConfig.has_rope()) {
      wait_rows<Variant>(shared_.rope_ring, shared_.rope_fenced, scored_.rope);
      multiply_rows<Scores>(q + 2 * SparseConfig::kHalfSwizzleColumns * kQuerySwizzleColumn,
                            opaque(without_rank(tile_descriptor(shared_.rope[scored_.rope.stage]))),
                            scores_, false);
    }
    bool has_yielded = false;
    if constexpr (!kConfig.sum_fences()) {
      const auto& [stage, phase] = scored_.half;
      const bool is_there = shared_.right_ring.full[stage].test_wait(phase);
      has_yielded = may_yield && !__all_sync(0xffffffff, is_there);
      if (has_yielded) yield();
    }
    wait_rows<Variant>(shared_.right_ring, shared_.right_fenced, scored_.half);
    const std::uint64_t right = without_rank(tile_descriptor(shared_.right[scored_.half.stage]));
#pragma unroll
    for (int swizzle_column = 0; swizzle_column < SparseConfig::kHalfSwizzleColumns;
         ++swizzle_column) {
      multiply_rows<Scores>(
          q + (SparseConfig::kHalfSwizzleColumns + swizzle_column) * kQuerySwizzleColumn,
          right + swizzle_column * kSwizzleColumn, scores_, false);
    }
    cute::warpgroup_commit_batch();
    return has_yielded;
  }
  __device__ void end_scores(bool is_last) {
    if constexpr (kConfig.has_rope()) {
      give_back<Variant>(shared_.rope_ring.empty[scored_.rope.stage]);
    }
    if (is_last) arrive(shared_.work_tile_ring.empty[0]);
    summed_ = scored_.half.stage;
    scored_.advance();
  }

  // True: the sums of earlier tiles stay as they are, for all rows of a warp.
  __device__ bool weigh(float (&keep)[2]) {
    const float to_log2 = params_.scale_log2;
    // Two blocks wait for rows: there it is only more code to fetch.
    if constexpr (kConfig.blocks == 1) {
      if (softmax_.weigh_as_before(scores_, to_log2, shows_all(mask_), weights_)) {
        keep[0] = keep[1] = 1.0F;
        return true;
      }
    }
    hide_columns(scores_, mask_);
    const bool stays = softmax_.weigh(scores_, to_log2, keep);
    pack<DType::bf16>(scores_, weights_);
    return stays;
  }

  __device__ void finish() {
    const WorkTileInfo work_tile = info();
    float factor[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float base = softmax_.base[i] * params_.scale_log2;
      factor[i] = finish_work_tile_row(params_, work_tile, i, base, quad_sum(softmax_.sum[i]));
    }
    shared_.handover.finish[work_tile_at_.phase][thread()] = {factor[0], factor[1]};
  }

  __device__ void hand_over(const float (&keep)[2]) {
    constexpr int kBoth = 2 * SparseConfig::kWarpgroup;
    if (!is_first_handover_) cutlass::arch::NamedBarrier::sync(kBoth, kHandoverEmpty);
    is_first_handover_ = false;
    auto& handover = shared_.handover;
#pragma unroll
    for (int step = 0; step < kConfig.keys / 16; ++step) {
      handover.weights[step][thread()] = {weights_[4 * step], weights_[4 * step + 1],
                                          weights_[4 * step + 2], weights_[4 * step + 3]};
    }
    handover.keep[thread()] = {keep[0], keep[1]};
    cutlass::arch::NamedBarrier::arrive(kBoth, kHandoverFull);
  }

  __device__ void sum_values(bool is_first) {
    const int stage = summed_;
    sums_.start(weights_, shared_.left[stage], kConfig.swizzle_column_bytes(), is_first);
    if (tiles_left_ > 1) {
      const bool has_yielded = start_scores(true);
      cute::warpgroup_wait<1>();
      sums_.wait_is_over();
      give_back<Variant>(shared_.left_ring.empty[stage]);
      cute::warpgroup_wait<0>();
      pin(scores_);
      if (!has_yielded) yield();
      end_scores(tiles_left_ == 2);
    } else {
      yield();
      cute::warpgroup_wait<0>();
      sums_.wait_is_over();
      give_back<Variant>(shared_.left_ring.empty[stage]);
    }
  }

  const SparseParams& params_;
  SparseShared<Variant>& shared_;
  HalfSums sums_;
  float scores_[kConfig.keys / 2];
  std::uint32_t weights_[kConfig.keys / 4];
  std::uint32_t mask_[kConfig.keys / 32];  // of the tile that is scored
  SparseSoftmax softmax_;
  int tiles_left_ = 0;  // of the work tile, the one in hand with them
  RingPosition<1> work_tile_at_;
  TilePlace<Variant> scored_;  // the next tile to be scored
  int summed_ = 0;             // stage of the tile before it, whose values are summed
  bool is_first_handover_ = true;
};

// The warpgroup that sums the right half of the values. It holds a tile's weights back until the next
// tile's scores are computed, so that its products run while the other warpgroup is at its softmax.

template <typename Variant> class SumRole {
 public:
  __device__ SumRole(const SparseParams& params, SparseShared<Variant>& shared)
      : params_(params), shared_(shared) {}

  __device__ void run() {
    while (true) {
      shared_.work_tile_ring.wait_full(work_tile_at_);
      const int num_tiles = info().num_tiles;
      if (num_tiles == kNoWorkTile) return;
      // All of them, for what they read of the last work tile: racecheck does not follow one for its warp.
      shared_.work_tile_ring.empty[0].arrive();
      if (num_tiles > 0) fence_tile();
      bool is_first = true;
      for (int left = num_tiles; left > 0; --left) {
        sum_values(is_first, left == 1);
        is_first = false;
      }
      if (num_tiles != kNobody) store(num_tiles > 0);
      work_tile_at_.advance();
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
      if constexpr (kConfig.has_rope()) {
        if (warp() == 1) fence_part(shared_.rope_ring, shared_.rope_fenced, fenced_.rope);
      }
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

  __device__ WorkTileInfo info() const {
    return read_info(shared_.work_tiles[work_tile_at_.phase]);
  }

  __device__ void store(bool has_keys) const {
    const WorkTileInfo work_tile = info();
    const StoreRows rows{
        .params = params_, .work_tile = work_tile, .first_column = SparseConfig::kHalfColumns};
    rows.store(sums_, has_keys ? shared_.handover.finish[work_tile_at_.phase][thread()] : float2{});
  }

  const SparseParams& params_;
  SparseShared<Variant>& shared_;
  HalfSums sums_;
  std::uint32_t weights_[kConfig.keys / 4];
  RingPosition<1> work_tile_at_;
  RingPosition<kConfig.stages> summed_;
  TilePlace<Variant> fenced_;  // the next tile to be fenced
};

}  // namespace quire::cuda::sm90::sparse_mla
