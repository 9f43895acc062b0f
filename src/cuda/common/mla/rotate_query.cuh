// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/mla/prepare_x.h"
#include "cuda/common/mla/rotate.cuh"
#include "cuda/common/rows/token_place.cuh"

namespace quire::cuda {

// One pair of the rope columns of a query. Not through the read-only path: y may be q.
__device__ inline void rotate_query(const RotateQueriesParams& params, const TokenPlace& place,
                                    std::int64_t token, std::int64_t head, int pair) {
  const std::byte* q = params.q.data + token * params.q.token_bytes + head * params.q.head_bytes;
  std::byte* y = params.y + token * params.y_token_bytes + head * params.y_head_bytes;
  const int from = params.q.width - params.rope + 2 * pair;
  const int to = params.y_width - params.rope + 2 * pair;
  const RotatedPair turned =
      rotate_pair(params.angles, place.position, pair, load_number(q, params.q.dtype, from),
                  load_number(q, params.q.dtype, from + 1));
  store_number(y, params.y_dtype, to, turned.a);
  store_number(y, params.y_dtype, to + 1, turned.b);
}

}  // namespace quire::cuda
