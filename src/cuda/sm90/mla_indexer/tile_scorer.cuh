// SPDX-License-Identifier: Apache-2.0
// A warpgroup's scores of one key tile after another, out of every kWarpgroups-th stage of a ring. Shared has
// `ring`, `tiles`, `key_scales`, `marks`, `queries`, `half_queries` and `weights` (shared.cuh).
#pragma once

#include "cuda/common/thread/block.cuh"
#include "cuda/sm90/mla_indexer/half_products.cuh"
#include "cuda/sm90/mla_indexer/products.cuh"
#include "cuda/sm90/mla_indexer/shared.cuh"
#include "cuda/sm90/mla_indexer/turn.cuh"

namespace quire::cuda::sm90::mla_indexer {

template <IndexConfig kConfig, typename Shared> class TileScorer {
 public:
  using Sums = HeadSums<kConfig>;

  // A lane's, of key() and token Sums::token().
  struct Score {
    float value;
    TileMark mark;
  };

  // The warpgroup-th of those that score.
  __device__ TileScorer(const IndexParams& params, Shared& shared, int warpgroup)
      : shared_(shared),
        // A box of 16 keys leaves a gap behind its scales.
        scale_place_(key() + (params.pages.box_rows == 16 ? 16 * warp() : 0)) {
    // The compiler would find it anew for every tile.
    asm volatile("" : "+r"(scale_place_));
    at_.stage = warpgroup;
  }

  // A lane's key in a tile.
  __device__ static int key() { return 16 * warp() + Sums::key(); }

  __device__ void load_weights(int queries) {
    const float* weights = Sums::own_weights(shared_.weights[queries]);
#pragma unroll
    for (int i = 0; i < Sums::kOwnWeights; ++i) weights_[i] = weights[i];
  }

  // Begins the products of the warpgroup's next tile, when it is there. What runs beside them is the
  // caller's choice.
  __device__ void start(int queries) {
    shared_.ring.wait_full(at_);
    __syncwarp();  // the barrier's wait alone does not keep the compiler from reading before it
    if constexpr (kConfig.multiplies_halves()) {
      multiply_halves<kConfig>(shared_.tiles[at_.stage], shared_.half_queries[queries], products_);
    } else {
      start_products<kConfig>(shared_.tiles[at_.stage], shared_.queries[queries], products_);
    }
  }

  // What the products of a tile add up to in this thread.
  struct Parts {
    float values[2];
    RingPosition<kConfig.stages> at;  // where the tile was; its scales and its mark still are
  };
  __device__ Parts add_up() {
    wait_for_products(products_);
    if (threadIdx.x % 32 == 0) shared_.ring.empty[at_.stage].arrive();
    Parts parts{.at = at_};
    advance_by_turn(at_);
    Sums::add(products_, weights_, parts.values);
    return parts;
  }

  // Before the warp arrives at the same stage again (shared.cuh).
  __device__ Score join(const Parts& parts) const {
    const auto& [stage, phase] = parts.at;
    const float scale = shared_.key_scales[phase][stage][scale_place_];
    return {.value = Sums::exchange(parts.values) * scale, .mark = shared_.marks[phase][stage]};
  }

  // The tiles from `tile` up to `end` that are the warpgroup's turn, each given to leave(parts): beside
  // the next one's products where those bind.
  template <typename Leave>
  __device__ int score(int queries, int tile, int end, const Leave& leave) {
    if (tile >= end) return tile;
    start(queries);
    for (tile += IndexConfig::kWarpgroups; tile < end; tile += IndexConfig::kWarpgroups) {
      const Parts parts = add_up();
      if constexpr (kConfig.tokens == 1) {  // bound by memory: the next tile may be long in coming
        leave(parts);
        start(queries);
      } else {
        start(queries);
        leave(parts);
      }
    }
    leave(add_up());
    return tile;
  }

 private:
  __device__ static int warp() {
    return static_cast<int>(threadIdx.x / 32 % 4);
  }

  Shared& shared_;
  int scale_place_;  // of this thread's key
  float weights_[Sums::kOwnWeights];
  float products_[kConfig.columns() / 2];
  RingPosition<kConfig.stages> at_;
};

}  // namespace quire::cuda::sm90::mla_indexer
