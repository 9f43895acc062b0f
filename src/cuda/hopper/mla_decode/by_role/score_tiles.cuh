// SPDX-License-Identifier: Apache-2.0
// Two warpgroups that take tiles in turn: scores, softmax, weights into shared memory. While one is at
// its softmax, the tensor cores are the other's and the values'.
//
// Exponents are relative to a reference of the row, which follows its maximum only where that rises by
// more than kSlack powers of two: the values' sums are then seldom scaled again.
#pragma once

#include <cute/arch/copy_sm90.hpp>

#include "cuda/hopper/flash_attention/prefill/softmax.cuh"
#include "cuda/hopper/latent_attention/products.cuh"
#include "cuda/hopper/latent_attention/row_sight.cuh"
#include "cuda/hopper/mla_decode/by_role/load_rows_of_q.cuh"

namespace quire::cuda::hopper {

class ScoreTiles {
 public:
  // `group`: of the two.
  __device__ ScoreTiles(const LatentParams& params, ByRoleShared& shared, int group, int rank)
      : params_(params),
        shared_(shared),
        group_(group),
        warp_(static_cast<int>(threadIdx.x % 128 / 32)),
        row_(16 * warp_ + static_cast<int>(threadIdx.x % 32 / 4)),
        first_row_(rank * ByRole::kRows) {}

  __device__ void run() {
    for (RingPosition<ByRole::kItems> item_at;; item_at.advance()) {
      shared_.item_ring.wait_full(item_at);
      const LatentItem& item = shared_.items[item_at.stage];
      if (item.tiles == 0) return;
      sync_scores();  // the products with the queries before these are done
      load_rows_of_q(params_, shared_, item, first_row_, 4 * group_ + warp_);
      sync_scores();
      attend(item);
      leave_stats();
      arrive_once(shared_.item_ring.empty[item_at.stage]);
    }
  }

 private:
  static constexpr float kSlack = 8.0F;
  using Block = float[kTileScores];

  // Of what a group waits for at each of its tiles but the block's first.
  __device__ static std::uint32_t turn_phase(int number) {
    return static_cast<std::uint32_t>(number - 1) / 2 & 1;
  }

  __device__ static void sync_scores() {
    cutlass::arch::NamedBarrier::sync(128 * ByRole::kGroups, 0);
  }

  __device__ void attend(const LatentItem& item) {
    const RowSight sight(params_, item, params_.pieces.rows);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      ref_[i] = -INFINITY;
      sum_[i] = 0.0F;
    }
    for (int tile = (tile_ ^ group_) & 1; tile < item.tiles; tile += 2) {
      weigh(sight, tile, tile_ + tile);
    }
    tile_ += item.tiles;
  }

  // `tile`: of the item; `number`: of the block.
  __device__ void weigh(const RowSight& sight, int tile, int number) {
    Block scores;
    multiply(number, scores);
    sight.hide(tile, shared_.valid[stage_of(number)], first_row_ + row_, scores);
    follow_refs(tile == 0, number, scores);
    std::uint32_t words[kTileScores / 2];
    exponentiate(scores, words);
    if (number > 0) shared_.weights_empty[group_].wait(turn_phase(number));
    store_weights(words);
    zero_behind(sight.num_keys(tile), stage_of(number));
    cutlass::arch::fence_view_async_shared();
    arrive_once(shared_.weights_full);
  }

  __device__ void multiply(int number, Block& scores) {
    using Op = Wgmma<DType::bf16, ByRole::kKeys>;
    constexpr auto kIndex = std::make_index_sequence<kTileScores>{};
    constexpr int kSlabSteps = kRowBytes / kStepBytes;
    const int stage = stage_of(number);
    const std::uint32_t a = broadcast(descriptor_low(&shared_.q));
    const std::uint32_t b = broadcast(descriptor_low(&shared_.stages[stage]));
    shared_.full[stage][0].wait(phase_of(number));
    pin(scores);
    cute::warpgroup_arrive();
    const auto add_slab = [&](int slab, bool is_first) {
#pragma unroll
      for (int step = 0; step < kSlabSteps; ++step) {
        const int bytes = slab * ByRole::kSlabBytes + step * kStepBytes;
        const bool starts = is_first && step == 0;
        detail::issue<Op>(
            descriptor(a + (bytes >> 4), kRowsHigh), descriptor(b + (bytes >> 4), kRowsHigh),
            scores, starts ? cute::SM90::GMMA::ScaleOut::Zero : cute::SM90::GMMA::ScaleOut::One,
            kIndex);
      }
    };
#pragma unroll
    for (int turn = 0; turn < ByRole::kParts; ++turn) {
      const int part = part_of(turn);
      if (turn > 0) {
        shared_.full[stage][part].wait(phase_of(number));
        cute::warpgroup_arrive();  // else the compiler adds one, and serialises the products
      }
#pragma unroll
      for (int slab = 0; slab < ByRole::kPartSlabs; ++slab) {
        add_slab(ByRole::kPartSlabs * part + slab, turn == 0 && slab == 0);
      }
      if (part == 0) add_slab(ByRole::kRopeSlab, false);
    }
    cute::warpgroup_commit_batch();
    cute::warpgroup_wait<0>();
    pin(scores);
  }

  // The rows' references, from the warp of the other group that had the tile before, and on to it.
  __device__ void follow_refs(bool is_first, int number, const Block& scores) {
    float before[2] = {-INFINITY, -INFINITY};
    float highest[2];
    highest_of(scores, highest);
    if (number > 0) shared_.refs_full[group_ ^ 1][warp_].wait(turn_phase(number));
    if (!is_first) {
#pragma unroll
      for (int i = 0; i < 2; ++i) before[i] = shared_.refs[row_ + 8 * i];
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float top = highest[i] * params_.to_log2;
      const float now = top > before[i] + kSlack || before[i] == -INFINITY ? top : before[i];
      const float factor = before[i] == -INFINITY ? 1.0F : exp2_approx(before[i] - now);
      // The values have read those of this group's last tile: its stage is filled again.
      if (threadIdx.x % 4 == 0) shared_.factors[group_][row_ + 8 * i] = factor;
      sum_[i] *= ref_[i] == -INFINITY ? 1.0F : exp2_approx(ref_[i] - now);
      ref_[i] = now;
    }
    if (threadIdx.x % 4 == 0) {
#pragma unroll
      for (int i = 0; i < 2; ++i) shared_.refs[row_ + 8 * i] = ref_[i];
    }
    arrive_once(shared_.refs_full[group_][warp_]);
  }

  __device__ static void highest_of(const Block& scores, float (&highest)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      highest[i] = fmaxf(scores[2 * i], scores[2 * i + 1]);
#pragma unroll
      for (int j = 2 * i + 4; j < kTileScores; j += 4) {
        highest[i] = fmaxf(highest[i], fmaxf(scores[j], scores[j + 1]));
      }
      highest[i] = quad_max(highest[i]);
    }
  }

  __device__ void exponentiate(Block& scores, std::uint32_t (&words)[kTileScores / 2]) {
    const float offset[2] = {ref_[0] == -INFINITY ? 0.0F : ref_[0],
                             ref_[1] == -INFINITY ? 0.0F : ref_[1]};
    float odd[2] = {0.0F, 0.0F};
#pragma unroll
    for (int j = 0; j < kTileScores; ++j) {
      scores[j] = exp2_approx(fmaf(scores[j], params_.to_log2, -offset[j / 2 % 2]));
    }
#pragma unroll
    for (int j = 0; j < kTileScores; j += 2) {
      sum_[j / 2 % 2] += scores[j];
      odd[j / 2 % 2] += scores[j + 1];
      words[j / 2] = pack_pair<DType::bf16>(scores[j], scores[j + 1]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) sum_[i] += odd[i];
  }

  __device__ void store_weights(const std::uint32_t (&words)[kTileScores / 2]) {
    const auto lane = static_cast<int>(threadIdx.x % 32);
    const int row = 16 * warp_ + lane % 16;
#pragma unroll
    for (int chunk = 0; chunk < ByRole::kKeys / 8; chunk += 2) {
      auto& place =
          reinterpret_cast<cute::uint128_t&>(shared_.weights[slab_offset(row, chunk + lane / 16)]);
      cute::SM90_U32x4_STSM_N::copy(words[2 * chunk], words[2 * chunk + 1], words[2 * chunk + 2],
                                    words[2 * chunk + 3], place);
    }
  }

  // Rows behind the sequence's end, in its last page, may hold anything, and 0 · NaN is NaN.
  __device__ void zero_behind(int num_keys, int stage) {
    if (num_keys >= ByRole::kKeys) return;
    constexpr int kChunks = kRowBytes / 16;
#pragma unroll 1
    for (int slab = 0; slab < ByRole::kValueSlabs; ++slab) {
      auto* chunks = reinterpret_cast<uint4*>(shared_.stages[stage][slab]);
#pragma unroll 1
      for (int chunk = num_keys * kChunks + static_cast<int>(threadIdx.x % 128);
           chunk < ByRole::kKeys * kChunks; chunk += 128) {
        chunks[chunk] = uint4{};
      }
    }
  }

  // What this group has of the item's sums.
  __device__ void leave_stats() {
    shared_.stats_empty.wait(stats_phase_ ^ 1);
    stats_phase_ ^= 1;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float sum = quad_sum(sum_[i]);
      if (threadIdx.x % 4 == 0) shared_.stats[group_][row_ + 8 * i] = {ref_[i], sum};
    }
    arrive_once(shared_.stats_full);
  }

  const LatentParams& params_;
  ByRoleShared& shared_;
  const int group_;
  const int warp_;       // of the group
  const int row_;        // of the block, the thread's first; the second stands 8 below it
  const int first_row_;  // of the item, the block's
  float ref_[2];         // of the thread's rows, when this group last had a tile
  float sum_[2];         // of this thread's weights, relative to it
  int tile_ = 0;         // the item's first
  std::uint32_t stats_phase_ = 0;
};

}  // namespace quire::cuda::hopper
