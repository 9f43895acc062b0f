// SPDX-License-Identifier: Apache-2.0
// The warp that loads queries also converts them, where products are of halves, and tells the scorers by
// itself: these meet at no barrier of their own. Shared has `queries`, `half_queries` and `queries_landed`
// (shared.cuh).
#pragma once

#include "cuda/common/pipeline/ring.cuh"
#include "cuda/common/pipeline/tma.cuh"
#include "cuda/sm90/mla_indexer/half_products.cuh"
#include "cuda/sm90/mla_indexer/params.h"

namespace quire::cuda::sm90::mla_indexer {

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

}  // namespace quire::cuda::sm90::mla_indexer
