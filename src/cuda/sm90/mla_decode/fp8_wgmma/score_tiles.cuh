// SPDX-License-Identifier: Apache-2.0
// The warpgroup that scores: scores and values of an item's tiles into shared memory. What a thread has of a tile:
// swap_ab/thread_rows.cuh.
#pragma once

#include "cuda/sm90/mla_decode/fp8_wgmma/score_values.cuh"
#include "cuda/sm90/mla_decode/swap_ab/load_tile_queries.cuh"
#include "cuda/sm90/mla_decode/swap_ab/thread_rows.cuh"

namespace quire::cuda::sm90::mla_decode {

// kRope: of the rows' rope columns.
template <SwapAbConfig kConfig, DType kRope> class ScoreTiles {
 public:
  // `first_row`: of the item, this block's.
  __device__ ScoreTiles(const MlaDecodeParams& params, Fp8WgmmaShared<kConfig>& shared,
                        int first_row)
      : format_(params.format),
        shared_(shared),
        warp_(__shfl_sync(0xffffffff, static_cast<int>(threadIdx.x % 128 / 32), 0)),
        queries_(params.attend, shared, kRope == DType::fp8_e4m3, first_row),
        products_(params.format, shared, warp_) {}

  __device__ void run() {
    for (RingPosition<SwapAbConfig::kItems> item_at;; item_at.advance()) {
      shared_.item_ring.wait_full(item_at);
      const LatentItem& item = shared_.items[item_at.stage];
      const int tiles = item.tiles;
      if (tiles == 0) return;
      sync_scores();  // all products with the queries before these are done
      queries_.template load<Fp8Wgmma::kScoreWarps>(item, warp_);
      sync_scores();
      for (int tile = 0; tile < tiles; ++tile, ++tile_) score();
      shared_.item_ring.empty[item_at.stage].arrive();
    }
  }

 private:
  using Rows = ThreadRows<kConfig>;

  __device__ static void sync_scores() {
    cutlass::arch::NamedBarrier::sync(32 * Fp8Wgmma::kScoreWarps, 1);
  }

  __device__ void score() {
    const UnitPlace<kConfig> at(tile_, warp_);
    shared_.full[at.place].wait(at.phase);
    const int live = shared_.live[at.place];
    if (live < SwapAbConfig::kUnitKeys) zero_from(live, at.place);
    const LatentKeyFactors factors(format_, shared_.units[at.place], shared_.scales[at.place],
                                   live);
    float scores[Rows::kScores];
    products_.score(at.place, factors, scores);
    shared_.scores_empty.wait((tile_ & 1) ^ 1);
    leave_scores(scores);
    if (Rows::lane() % 4 == 0) {
#pragma unroll
      for (int i = 0; i < 2; ++i) shared_.key_factors[own_key(i)] = factors.whole[i];
    }
    if (Rows::lane() == 0) reinterpret_cast<int*>(&shared_.tile_live)[warp_] = live;
    shared_.scores_full.arrive();
    products_.store(tile_, at.place, factors);
    shared_.empty[at.place].arrive();
    cutlass::arch::fence_view_async_shared();
    shared_.values_full.arrive();
  }

  // Of the tile.
  __device__ int own_key(int i) const {
    return SwapAbConfig::kUnitKeys * warp_ + Rows::key() + 8 * i;
  }

  // Eight rows further, a score stands in the same place of its row.
  __device__ void leave_scores(const float (&scores)[Rows::kScores]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float* first = &shared_.scores[score_place(Rows::row(i % 2), opaque(own_key(i / 2)))];
#pragma unroll
      for (int j = 0; j < Rows::kScores / 4; ++j) {
        first[8 * SwapAbConfig::kKeys * j] = scores[4 * j + i];
      }
    }
  }

  // Rows behind the sequence's end, in its last page, may hold anything, and 0 · NaN is NaN.
  __device__ void zero_from(int row, int place) const {
    constexpr int kChunks = LatentConfig::kLatent / 16;
    static_assert(kChunks == 32);
#pragma unroll 1
    for (; row < SwapAbConfig::kUnitKeys; ++row) {
      *reinterpret_cast<uint4*>(shared_.units[place] + SpacedRows::offset(row, Rows::lane())) =
          uint4{};
    }
    cutlass::arch::fence_view_async_shared();  // the next copy to this place
    __syncwarp();
  }

  const LatentRowFormat& format_;
  Fp8WgmmaShared<kConfig>& shared_;
  const int warp_;  // of the group
  const LoadTileQueries<kConfig, Fp8WgmmaShared<kConfig>> queries_;
  const ScoreValues<kConfig, kRope> products_;
  int tile_ = 0;
};

}  // namespace quire::cuda::sm90::mla_decode
