// SPDX-License-Identifier: Apache-2.0
// The scorers: three warpgroups take the tiles by turns, across pieces, and leave a score for each
// token and key.
#pragma once

#include "cuda/hopper/mla_indexer/half_products.cuh"
#include "cuda/hopper/mla_indexer/products.cuh"
#include "cuda/hopper/mla_indexer/shared.cuh"
#include "cuda/hopper/tile/block.cuh"

namespace quire::cuda::hopper {

template <IndexConfig kConfig> class IndexScore {
 public:
  __device__ IndexScore(const IndexParams& params, IndexShared<kConfig>& shared)
      : shared_(shared),
        // A box of 16 keys leaves a gap behind its scales.
        scale_place_(key() + (params.pages.box_rows == 16 ? 16 * warp() : 0)),
        score_place_(Sums::token() * (IndexConfig::kTileKeys + 16) + key()) {
    // The compiler would find them anew for every tile, some twenty instructions.
    asm volatile("" : "+r"(scale_place_), "+r"(score_place_));
  }

  __device__ void run() {
    int end = 0;  // of the pieces so far
    int tile = warpgroup_in_block();
    at_.stage = slot_at_.stage = tile;
    for (RingPosition<IndexShared<kConfig>::kQueries> queries;; queries.advance()) {
      shared_.query_ring.wait_full(queries);
      __syncwarp();  // keeps reads behind the wait
      const int tiles = shared_.query_tiles[queries.stage];
      if (tiles < 0) return;
      load_queries(queries.stage);
      for (end += tiles; tile < end; tile += IndexConfig::kWarpgroups) score_tile(queries.stage);
      __syncwarp();
      if (threadIdx.x % 32 == 0) shared_.query_ring.empty[queries.stage].arrive();
    }
  }

 private:
  using Sums = HeadSums<kConfig>;
  // In registers; of two products there would be too many.
  static constexpr bool kKeepsWeights = kConfig.products() == 1;

  __device__ void load_queries(int queries) {
    if constexpr (kConfig.multiplies_halves()) {
      convert_queries<kConfig>(shared_.queries[queries], shared_.half_queries[queries],
                               static_cast<int>(threadIdx.x), IndexConfig::kScorers);
      cutlass::arch::fence_view_async_shared();
      Team<IndexConfig::kScorers>{static_cast<int>(threadIdx.x), 1}.sync();
    }
    if constexpr (kKeepsWeights) {
      const float* weights = Sums::own_weights(shared_.weights[queries], 0);
#pragma unroll
      for (int i = 0; i < Sums::kOwnWeights; ++i) weights_[i] = weights[i];
    }
  }

  __device__ void score_tile(int queries) {
    shared_.ring.wait_full(at_);
    __syncwarp();  // the barrier's wait alone does not keep the compiler from reading before it
    float scales[Sums::kResults];
#pragma unroll
    for (int i = 0; i < Sums::kResults; ++i) {
      scales[i] = shared_.key_scales[at_.phase][at_.stage][scale_place_ + 8 * i];
    }
    const TileMark mark = shared_.marks[at_.phase][at_.stage];
    float parts[Sums::kParts][2] = {};
#pragma unroll
    for (int product = 0; product < kConfig.products(); ++product) {
      float sums[kConfig.product_columns() / 2];
      if constexpr (kConfig.multiplies_halves()) {
        multiply_halves<kConfig>(shared_.tiles[at_.stage], shared_.half_queries[queries], sums);
      } else {
        multiply_tile<kConfig>(shared_.tiles[at_.stage], shared_.queries[queries], product, sums);
      }
      if (product == kConfig.products() - 1 && threadIdx.x % 32 == 0) {
        shared_.ring.empty[at_.stage].arrive();
      }
      Sums::add(sums,
                kKeepsWeights ? weights_ : Sums::own_weights(shared_.weights[queries], product),
                product, parts);
    }
    float results[Sums::kResults];
    Sums::exchange(parts, results);
    leave(results, scales, mark);
    advance(at_);
    advance(slot_at_);
  }

  __device__ void leave(const float (&results)[Sums::kResults],
                        const float (&scales)[Sums::kResults], TileMark mark) {
    shared_.score_ring.wait_empty(slot_at_);
    __syncwarp();
    ScoreSlot<kConfig.tokens>& slot = shared_.slots[slot_at_.stage];
    if (Sums::is_first()) {
#pragma unroll
      for (int i = 0; i < Sums::kResults; ++i) {
        (&slot.scores[0][0])[score_place_ + 8 * i] = results[i] * scales[i];
      }
    }
    if (threadIdx.x % 128 == 0) slot.mark = mark;
    __syncwarp();
    if (threadIdx.x % 32 == 0) shared_.score_ring.full[slot_at_.stage].arrive();
  }

  // To this warpgroup's next tile.
  template <int kStages> __device__ static void advance(RingPosition<kStages>& at) {
    at.stage += IndexConfig::kWarpgroups;
    if (at.stage >= kStages) {
      at.stage -= kStages;
      at.phase ^= 1;
    }
  }
  __device__ static int warp() {
    return static_cast<int>(threadIdx.x / 32 % 4);
  }
  // A lane's key in a tile.
  __device__ static int key() {
    return 16 * warp() + Sums::key();
  }

  IndexShared<kConfig>& shared_;
  int scale_place_;  // of this thread's first key
  int score_place_;
  float weights_[Sums::kOwnWeights];  // where they are kept
  RingPosition<kConfig.stages> at_;
  RingPosition<kConfig.score_slots> slot_at_;
};

}  // namespace quire::cuda::hopper
