// SPDX-License-Identifier: Apache-2.0
// Rows that see no more than top_k keys take all that have a page: a warp to a row.
#pragma once

#include "cuda/common/rows/ragged.cuh"
#include "cuda/sm90/mla_indexer/params.h"
#include "cuda/sm90/mla_indexer/team.cuh"

namespace quire::cuda::sm90::mla_indexer {

// Four numbers at `slot`, or the first `count` of them.
__device__ inline void write_four(std::int32_t* slot, int4 four, int count) {
  if (count == 4 && reinterpret_cast<std::uintptr_t>(slot) % sizeof(int4) == 0) {
    *reinterpret_cast<int4*>(slot) = four;
    return;
  }
  if (count > 0) slot[0] = four.x;
  if (count > 1) slot[1] = four.y;
  if (count > 2) slot[2] = four.z;
  if (count > 3) slot[3] = four.w;
}

// A lane takes four keys at a time: they are of one page, whose size is a multiple of 16.
__device__ inline void write_unscored_row(const IndexParams& params, int token, int sequence,
                                          int bound) {
  const IndexPages& pages = params.pages;
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const std::uint32_t* table = pages.table + sequence * pages.table_stride;
  std::int32_t* row = params.out + token * params.out_stride;
  const int top_k = params.batch.top_k;
  int written = 0;
#pragma unroll 1
  for (int first = 0; first < bound; first += 128) {
    const int key = first + 4 * lane;
    const int column = key / pages.page_size;
    const bool is_mapped = key < bound && column < pages.max_pages &&
                           table[column] < static_cast<std::uint32_t>(pages.num_pages);
    const int count = is_mapped ? min(4, bound - key) : 0;
    const auto up_to = static_cast<int>(sum_up_to_lane(static_cast<unsigned>(count), lane));
    write_four(row + written + up_to - count, {key, key + 1, key + 2, key + 3}, count);
    written += __shfl_sync(kWholeWarp, up_to, 31);
  }
  const int aligned = (written + 3) / 4 * 4;
  if (lane < aligned - written && written + lane < top_k) row[written + lane] = -1;
#pragma unroll 1
  for (int slot = aligned + 4 * lane; slot < top_k; slot += 128) {
    write_four(row + slot, {-1, -1, -1, -1}, min(4, top_k - slot));
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

}  // namespace quire::cuda::sm90::mla_indexer
