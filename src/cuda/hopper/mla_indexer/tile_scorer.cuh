// SPDX-License-Identifier: Apache-2.0
// A warpgroup's scores of one key tile after another, out of every kWarpgroups-th stage of a ring. Shared has
// `ring`, `tiles`, `key_scales`, `marks`, `queries`, `half_queries` and `weights` (shared.cuh).
#pragma once

#include "cuda/hopper/mla_indexer/half_products.cuh"
#include "cuda/hopper/mla_indexer/products.cuh"
#include "cuda/hopper/mla_indexer/shared.cuh"
#include "cuda/hopper/mla_indexer/turn.cuh"
#include "cuda/hopper/tile/block.cuh"

namespace quire::cuda::hopper {

template <IndexConfig kConfig, typename Shared> class TileScorer {
 public:
  using Sums = HeadSums<kConfig>;

  // A lane's, of key() + 8i and token Sums::token().
  struct Scores {
    float values[Sums::kResults];
    TileMark mark;
  };

  __device__ TileScorer(const IndexParams& params, Shared& shared)
      : shared_(shared),
        // A box of 16 keys leaves a gap behind its scales.
        scale_place_(key() + (params.pages.box_rows == 16 ? 16 * warp() : 0)) {
    // The compiler would find it anew for every tile.
    asm volatile("" : "+r"(scale_place_));
    at_.stage = warpgroup_in_block();
  }

  // A lane's first key in a tile.
  __device__ static int key() { return 16 * warp() + Sums::key(); }

  // By all scorers.
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

  // Of the warpgroup's next tile, when it is there.
  __device__ Scores score_next(int queries) {
    shared_.ring.wait_full(at_);
    __syncwarp();  // the barrier's wait alone does not keep the compiler from reading before it
    float scales[Sums::kResults];
#pragma unroll
    for (int i = 0; i < Sums::kResults; ++i) {
      scales[i] = shared_.key_scales[at_.phase][at_.stage][scale_place_ + 8 * i];
    }
    Scores scores{.mark = shared_.marks[at_.phase][at_.stage]};
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
    Sums::exchange(parts, scores.values);
#pragma unroll
    for (int i = 0; i < Sums::kResults; ++i) scores.values[i] *= scales[i];
    advance_by_turn(at_);
    return scores;
  }

 private:
  // In registers; of two products there would be too many.
  static constexpr bool kKeepsWeights = kConfig.products() == 1;

  __device__ static int warp() {
    return static_cast<int>(threadIdx.x / 32 % 4);
  }

  Shared& shared_;
  int scale_place_;                   // of this thread's first key
  float weights_[Sums::kOwnWeights];  // where they are kept
  RingPosition<kConfig.stages> at_;
};

}  // namespace quire::cuda::hopper
