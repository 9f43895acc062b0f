// SPDX-License-Identifier: Apache-2.0
// The warpgroup that scores: a tile's scores and values, softmax, weights into shared memory.
//
// What a thread has of a tile: few_rows/thread_rows.cuh.
#pragma once

#include "cuda/hopper/mla_decode/few_rows/load_tile_queries.cuh"
#include "cuda/hopper/mla_decode/many_rows/follow_bases.cuh"
#include "cuda/hopper/mla_decode/many_rows/score_values.cuh"
#include "cuda/hopper/mla_decode/many_rows/tile_sight.cuh"

namespace quire::cuda::hopper {

// kRope: of the rows' rope columns.
template <FewRowsConfig kConfig, DType kRope> class WeighManyRows {
 public:
  // `first_row`: of the item, this block's.
  __device__ WeighManyRows(const MlaDecodeParams& params, ManyRowsShared<kConfig>& shared,
                           int first_row)
      : params_(params.attend),
        format_(params.format),
        shared_(shared),
        first_row_(first_row),
        warp_(__shfl_sync(0xffffffff, static_cast<int>(threadIdx.x % 128 / 32), 0)),
        products_(params.format, shared, warp_),
        bases_(shared, warp_) {}

  __device__ void run() {
    using Queries = LoadTileQueries<kConfig, ManyRowsShared<kConfig>>;
    const Queries queries(params_, shared_, kRope == DType::fp8_e4m3, first_row_);
    for (RingPosition<FewRowsConfig::kItems> item_at;; item_at.advance()) {
      shared_.item_ring.wait_full(item_at);
      const LatentItem& item = shared_.items[item_at.stage];
      const int tiles = item.tiles;
      if (tiles == 0) return;
      sync_scores();  // all products with the queries before these are done
      queries.template load<ManyRows::kScoreWarps>(item, warp_);
      TileSight<kConfig>::find(params_, item, first_row_, static_cast<int>(threadIdx.x % 128),
                               shared_);
      bases_.begin_item();
      sync_scores();
      attend(tiles);
      leave_stats();
      shared_.item_ring.empty[item_at.stage].arrive();
    }
  }

 private:
  using Rows = ThreadRows<kConfig>;
  static constexpr int kScores = Rows::kScores;
  static constexpr int kThreadRows = Rows::kThreadRows;

  __device__ static void sync_scores() { FollowBases<kConfig>::sync(); }

  __device__ void attend(int tiles) {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) sums_[i] = 0.0F;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile, ++tile_) weigh(tile);
  }

  __device__ void weigh(int tile) {
    const UnitPlace<kConfig> at(tile_, warp_);
    shared_.full[at.place].wait(at.phase);
    const int live = shared_.live[at.place];
    if (live < FewRowsConfig::kUnitKeys) zero_from(live, at.place);
    const KeyFactors factors(format_, shared_.units[at.place], shared_.scales[at.place], live);
    float scores[kScores];
    products_.score(tile_, at.place, factors, scores);
    shared_.empty[at.place].arrive();
    TileSight<kConfig>::hide(shared_, tile, warp_, live, scores);
    shared_.weights_empty.wait(tile_ & 1 ^ 1);
    std::uint32_t words[kScores / 2];
    bases_.weigh(scores, factors, sums_, words);
    store_weights(words);
    cutlass::arch::fence_view_async_shared();
    shared_.weights_full.arrive();
  }

  // Word 2j + i: rows 8j … of keys 8i …; stored across, so that a row's keys stand together.
  __device__ void store_weights(const std::uint32_t (&words)[kScores / 2]) const {
    const int lane = Rows::lane();
#pragma unroll
    for (int first = 0; first < kScores / 2; first += 4) {
      const int row = 4 * first + lane / 16 * 8 + lane % 8;
      auto& target = reinterpret_cast<cute::uint128_t&>(
          shared_.weights[slab_offset(row, 2 * warp_ + lane / 8 % 2)]);
      cute::SM90_U16x8_STSM_T::copy(words[first], words[first + 1], words[first + 2],
                                    words[first + 3], target);
    }
  }

  // Rows behind the sequence's end, in its last page, may hold anything, and 0 · NaN is NaN.
  __device__ void zero_from(int row, int place) const {
    constexpr int kChunks = LatentConfig::kLatent / 16;
    static_assert(kChunks == 32);
#pragma unroll 1
    for (; row < FewRowsConfig::kUnitKeys; ++row) {
      *reinterpret_cast<uint4*>(shared_.units[place] +
                                Operands<DType::fp8_e4m3>::offset(row, Rows::lane())) = uint4{};
    }
    cutlass::arch::fence_view_async_shared();  // the next copy to this place
    __syncwarp();
  }

  // The item's sums of weights.
  __device__ void leave_stats() {
    shared_.stats_empty.wait(stats_phase_ ^ 1);
    stats_phase_ ^= 1;
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      float sum = sums_[i];
#pragma unroll
      for (int distance = 4; distance < 32; distance *= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, distance);
      }
      if (Rows::lane() < 4) shared_.stats_sums[warp_][Rows::row(i)] = sum;
    }
    bases_.leave_stats();
    shared_.stats_full.arrive();
  }

  const LatentParams& params_;
  const LatentRowFormat& format_;
  ManyRowsShared<kConfig>& shared_;
  const int first_row_;
  const int warp_;  // of the group
  ScoreValues<kConfig, kRope> products_;
  FollowBases<kConfig> bases_;
  float sums_[kThreadRows];  // of this thread's weights, relative to the references
  int tile_ = 0;
  std::uint32_t stats_phase_ = 0;
};

}  // namespace quire::cuda::hopper
