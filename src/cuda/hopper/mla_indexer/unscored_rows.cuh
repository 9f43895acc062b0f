// SPDX-License-Identifier: Apache-2.0
// Rows that see no more than top_k keys take all that have a page: a warp to a row.
#pragma once

#include "cuda/hopper/mla_indexer/params.h"
#include "cuda/hopper/mla_indexer/team.cuh"
#include "cuda/tile/ragged.cuh"

namespace quire::cuda::hopper {

__device__ inline void write_unscored_row(const IndexParams& params, int token, int sequence,
                                          int bound) {
  const IndexPages& pages = params.pages;
  const unsigned lane = threadIdx.x % 32;
  const std::uint32_t* table = pages.table + sequence * pages.table_stride;
  std::int32_t* row = params.out + token * params.out_stride;
  int written = 0;
  for (int first = 0; first < bound; first += 32) {
    const int key = first + static_cast<int>(lane);
    const int column = key / pages.page_size;
    const bool is_mapped = key < bound && column < pages.max_pages &&
                           table[column] < static_cast<std::uint32_t>(pages.num_pages);
    const unsigned mapped = __ballot_sync(kWholeWarp, is_mapped);
    if (is_mapped) row[written + __popc(mapped & ((1u << lane) - 1u))] = key;
    written += __popc(mapped);
  }
  for (int slot = written + static_cast<int>(lane); slot < params.batch.top_k; slot += 32) {
    row[slot] = -1;
  }
}

// Tokens first, first + step, …; called by whole warps.
__device__ inline void write_unscored_rows(const IndexParams& params, int first, int step) {
  const IndexBatch& batch = params.batch;
  const int tokens = min(batch.tokens, static_cast<int>(batch.row_offsets[batch.size]));
  for (int token = first; token < tokens; token += step) {
    const int sequence =
        sequence_of(batch.row_offsets, batch.size, static_cast<std::uint32_t>(token));
    const SequenceBlocks work = sequence_blocks(batch, sequence);
    const int bound = bound_of(batch, work, token - work.first_token);
    if (bound <= batch.top_k) write_unscored_row(params, token, sequence, bound);
  }
}

}  // namespace quire::cuda::hopper
