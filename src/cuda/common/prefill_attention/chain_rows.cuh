// SPDX-License-Identifier: Apache-2.0
// Rows whose keys come in chunks: a chunk takes over what the ones before it left, in fp32, and
// stores the finished rows or leaves them to the next.
#pragma once

#include "cuda/common/prefill_attention/staged_rows.cuh"

namespace quire::cuda {

// Maxima in log2 units, without the headroom, which all chunks have alike; the first thread of a
// quad holds a row's whole sum, the others none of it, unless it is NaN.
__device__ inline RowSoftmax whole_rows(const RowSoftmax& softmax, const float (&to_log2)[2]) {
  RowSoftmax whole;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float sum = quad_sum(softmax.sum[i]);
    whole.sum[i] = threadIdx.x % 4 == 0 || isnan(sum) ? sum : 0.0F;
    whole.max[i] = softmax.max[i] == -INFINITY ? -INFINITY : softmax.max[i] * to_log2[i];
  }
  return whole;
}

// What is kept of one row. A thread's columns are pairs 8 apart.
struct KeptRow {
  float2* row;   // maximum, sum
  float2* sums;  // the thread's first pair

  __device__ KeptRow(const ChainedRows& chain, std::int64_t index, int value_dim)
      : row(reinterpret_cast<float2*>(chain.rows) + index),
        sums(reinterpret_cast<float2*>(chain.sums + index * value_dim) + threadIdx.x % 4) {}

  // Row i of the thread's two goes on from here.
  template <int kSums>
  __device__ void add_to(RowSoftmax& softmax, float (&total)[kSums], int i) const {
    const float2 kept = *row;
    const float now = fmaxf(softmax.max[i], kept.x);
    const float from = now == -INFINITY ? 0.0F : now;
    const float by = exp2_approx(softmax.max[i] - from);
    const float by_kept = exp2_approx(kept.x - from);
    softmax.max[i] = now;
    softmax.sum[i] = softmax.sum[i] * by + (threadIdx.x % 4 == 0 ? kept.y * by_kept : 0.0F);
#pragma unroll
    for (int j = 0; j < kSums / 4; ++j) {
      const float2 pair = sums[4 * j];
      total[4 * j + 2 * i] = total[4 * j + 2 * i] * by + pair.x * by_kept;
      total[4 * j + 2 * i + 1] = total[4 * j + 2 * i + 1] * by + pair.y * by_kept;
    }
  }

  template <int kSums>
  __device__ void keep(const RowSoftmax& softmax, const float (&total)[kSums], int i) const {
    if (threadIdx.x % 4 == 0) *row = make_float2(softmax.max[i], softmax.sum[i]);
#pragma unroll
    for (int j = 0; j < kSums / 4; ++j) {
      sums[4 * j] = make_float2(total[4 * j + 2 * i], total[4 * j + 2 * i + 1]);
    }
  }
};

// As store_rows(), which ends the chain.
template <PrefillConfig kConfig, int kSums>
__device__ inline void chain_rows(const PrefillParams& params, std::uint32_t links,
                                  const PrefillTile& tile, int row, const RowSoftmax& softmax,
                                  const float (&to_log2)[2], float (&sums)[kSums]) {
  const bool continues = (links & ChainedRows::kContinues) != 0;
  const bool finishes = (links & ChainedRows::kFinishes) != 0;
  const std::int64_t heads = std::int64_t{params.head_tiles} << params.tile_heads_log2;
  RowSoftmax whole = whole_rows(softmax, to_log2);
  std::int64_t index[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const QueryRow at = query_row(params, tile, row + 8 * i);
    // A chunk in the middle that a row sees nothing of leaves it as it is. NaN scores have no maximum.
    const bool sees_nothing = whole.max[i] == -INFINITY && !isnan(whole.sum[i]);
    const bool is_left = continues && !finishes && sees_nothing;
    const bool is_taken = at.token < tile.tokens && !is_left;
    index[i] = is_taken ? (tile.first_row + at.token) * heads + at.head : -1;
    if (is_taken && continues) KeptRow(params.chain, index[i], 2 * kSums).add_to(whole, sums, i);
  }
  if (finishes) {
    store_staged<kConfig>(params, tile, row, whole, sums);
    return;
  }
  __syncwarp();  // all of a quad have read what its first thread replaces
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (index[i] >= 0) KeptRow(params.chain, index[i], 2 * kSums).keep(whole, sums, i);
  }
}

}  // namespace quire::cuda
