// SPDX-License-Identifier: Apache-2.0
// What a CTA loads of a row: key tiles, a warp for each warpgroup of scorers; queries and weights,
// by another.
#pragma once

#include <climits>

#include "cuda/common/pipeline/ring.cuh"
#include "cuda/common/pipeline/tma.cuh"
#include "cuda/common/thread/thread.cuh"
#include "cuda/sm90/mla_indexer/params.h"
#include "cuda/sm90/mla_indexer/products.cuh"
#include "cuda/sm90/mla_indexer/shared.cuh"
#include "cuda/sm90/mla_indexer/tile_loader.cuh"

namespace quire::cuda::sm90::mla_indexer {

// The warp that loads queries also converts them, where products are of halves, and tells the scorers by
// itself: these meet at no barrier of their own. Shared has `queries`, `half_queries` and `queries_landed`
// (shared.cuh).

// Sends for the queries of a block of tokens. By one thread of the warp whose 32 threads are to arrive at
// `full` (arrive_with_queries).
template <IndexConfig kConfig, typename Shared>
__device__ inline void send_for_queries(const IndexParams& params, int first_token, int place,
                                        FullBarrier& full, Shared& shared) {
  FullBarrier* landed = &full;
  if constexpr (kConfig.multiplies_halves()) {
    landed = &shared.queries_landed[place];
    landed->arrive_and_expect_tx(kConfig.query_bytes());
  } else {
    full.expect_transaction(kConfig.query_bytes());
  }
  load_box({.map = &params.q, .shared = shared.queries[place], .full = landed}, 0, 0, first_token,
           0);
}

// By the whole warp, when it has written all else that `full` promises.
template <IndexConfig kConfig, int kPlaces, typename Shared>
__device__ inline void arrive_with_queries(const RingPosition<kPlaces>& at, FullBarrier& full,
                                           Shared& shared) {
  if constexpr (kConfig.multiplies_halves()) {
    shared.queries_landed[at.stage].wait(at.phase);
    __syncwarp();  // keeps reads behind the wait
    convert_queries<kConfig>(shared.queries[at.stage], shared.half_queries[at.stage]);
    cutlass::arch::fence_view_async_shared();
  }
  full.arrive();
}

// Behind the scorers.
inline constexpr int kFirstLoader = IndexConfig::kScorers / 32;
__device__ inline bool is_loader() {
  const int warp = warp_in_block();
  return warp >= kFirstLoader && warp < kFirstLoader + IndexConfig::kWarpgroups;
}

template <IndexConfig kConfig, typename Shared> class RowLoad {
 public:
  __device__ RowLoad(const IndexParams& params, Shared& shared, int warpgroup)
      : params_(params), loader_(params, shared, warpgroup), warpgroup_(warpgroup) {}

  // Asks for the first pages before the row is known: they are right where sequences have one new token
  // each. `share` has what does not depend on lengths.
  __device__ void guess(const RowShare& share, int token) {
    guessed_ = min(token, params_.batch.size - 1);
    box_ = find_box(share, warpgroup_, guessed_, INT_MAX);
  }

  // The share turned out to be another one.
  __device__ void forget_guess() { guessed_ = -1; }

  __device__ void run(const RowShare& share) {
    const int run = loader_.run_tiles() * kStep;
    const int end = share.own_tiles();
    const auto find = [&](int first) {
      return find_box(share, first, share.row.sequence, share.row.bound);
    };
    box_ =
        share.row.sequence == guessed_ ? loader_.cut_box(box_, share.row.bound) : find(warpgroup_);
    for (int index = warpgroup_; index < end;) {
      const Box next = find(index + run);  // arrives while this run waits
      const unsigned mapped = loader_.mapped_boxes(box_);
      const int last = min(index + run, end);
      for (int first = 0; index < last; index += kStep, first += loader_.boxes()) {
        loader_.load_tile(first, mapped, box_);
      }
      box_ = next;
    }
  }

 private:
  using Loader = TileLoader<kConfig, Shared>;
  using Box = typename Loader::Box;
  static constexpr int kStep = IndexConfig::kWarpgroups;

  // Of the run that begins with the first-th tile of the CTA.
  __device__ Box find_box(const RowShare& share, int first, int sequence, int num_keys) const {
    return loader_.find_box(share.tile(first + loader_.lane_tile() * kStep), sequence, num_keys);
  }

  const IndexParams& params_;
  Loader loader_;
  const int warpgroup_;
  int guessed_ = -1;  // sequence
  Box box_{};         // of the first run
};

template <IndexConfig kConfig, typename Shared>
__device__ inline void load_row_queries(const IndexParams& params, int token, Shared& shared) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  if (lane == 0) {
    send_for_queries<kConfig>(params, token, 0, shared.queries_full, shared);
  }
  const IndexWeights& weights = params.weights;
  const float* own = weights.data + token * weights.token_stride;
  for (int head = lane; head < kConfig.heads; head += 32) {
    shared.weights[0][HeadSums<kConfig>::weight_place(0, head)] =
        0.5f * own[head * weights.head_stride];
  }
  arrive_with_queries<kConfig>(RingPosition<1>{}, shared.queries_full, shared);
}

}  // namespace quire::cuda::sm90::mla_indexer
