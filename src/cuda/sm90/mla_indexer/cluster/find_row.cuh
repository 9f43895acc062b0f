// SPDX-License-Identifier: Apache-2.0
// Which sequence a token is of and how many keys it sees, by a whole warp in one round trip to memory where
// sequences have one new token each.
#pragma once

#include "cuda/sm90/mla_indexer/row_share.cuh"
#include "cuda/sm90/mla_indexer/team.cuh"

namespace quire::cuda::sm90::mla_indexer {

// All lanes get the same answer.
__device__ inline WholeRow find_row(const IndexBatch& batch, int token) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  // Where it is likely to be; if it is not there, all are gone through.
  int first = max(0, token - 15);
  for (bool is_guess = true;; is_guess = false) {
    const int sequence = first + lane;
    SequenceBlocks work;
    if (sequence < batch.size) work = sequence_blocks(batch, sequence);
    const int index = token - work.first_token;
    const bool has_token = index >= 0 && index < work.tokens;
    const unsigned holders = __ballot_sync(kWholeWarp, has_token);
    if (holders != 0) {
      const int holder = __ffs(static_cast<int>(holders)) - 1;
      const int bound = bound_of(batch, work, index);
      return {.token = token,
              .sequence = first + holder,
              .bound = __shfl_sync(kWholeWarp, bound, holder)};
    }
    first = is_guess ? 0 : first + 32;
    if (first >= batch.size) return {.token = token};
  }
}

}  // namespace quire::cuda::sm90::mla_indexer
