// SPDX-License-Identifier: Apache-2.0
// A tile that was cut along its keys (tail_cuts.h): every warpgroup keeps the sums of its rows'
// splits in memory, as its registers hold them, and the one whose split comes last puts them
// together, in the order of keys, whoever that is.
#pragma once

#include <cutlass/arch/barrier.h>

#include "cuda/common/prefill_attention/epilogue.cuh"
#include "cuda/common/softmax/softmax.cuh"

namespace quire::cuda {

// Rows whose keys come in chunks: a chunk takes over what the ones before it left, in fp32, and
// stores the finished rows or leaves them to the next.

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

template <PrefillConfig kConfig> class SplitStore {
 public:
  static constexpr int kSums = kConfig.value_dim / 2;  // of a thread
  static constexpr int kThreads = 128;

  __device__ SplitStore(const TailSplits& tail, const TileSplits& splits, int consumer)
      : tail_(tail), splits_(splits), consumer_(consumer) {}

  // Maxima in log2 units; a row's sum in the first thread of its quad, 0 in the others.
  __device__ void keep(const RowSoftmax& softmax, const float (&sums)[kSums]) const {
    const int place = place_of(splits_.slot);
    tail_.rows[place * kThreads + thread()] =
        make_float4(softmax.max[0], softmax.max[1], softmax.sum[0], softmax.sum[1]);
    float4* kept = sums_at(place);
#pragma unroll
    for (int j = 0; j < kSums / 4; ++j) {
      kept[j * kThreads] =
          make_float4(sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]);
    }
  }

  // Whether all splits of the tile are there. `answer`: in shared memory, for all threads.
  __device__ bool is_last(bool& answer, std::uint32_t barrier) const {
    __threadfence();
    cutlass::arch::NamedBarrier::sync(kThreads, barrier);
    if (thread() == 0) {
      answer = atomicAdd(tail_.arrivals + place_of(splits_.first_slot), 1) == splits_.count - 1;
      __threadfence();
    }
    cutlass::arch::NamedBarrier::sync(kThreads, barrier);
    return answer;
  }

  __device__ RowSoftmax join(float (&sums)[kSums]) const {
    RowSoftmax joined;
#pragma unroll 1
    for (int split = 0; split < splits_.count; ++split) {
      const float4 kept = rows_of(split);
      joined.max[0] = fmaxf(joined.max[0], kept.x);
      joined.max[1] = fmaxf(joined.max[1], kept.y);
    }
#pragma unroll
    for (float& sum : sums) sum = 0.0F;
#pragma unroll 1
    for (int split = 0; split < splits_.count; ++split) {
      const float4 kept = rows_of(split);
      const float by[2] = {rebased(kept.x, joined.max[0]), rebased(kept.y, joined.max[1])};
      joined.sum[0] += kept.z * by[0];
      joined.sum[1] += kept.w * by[1];
      add(sums_at(place_of(splits_.slot_of(split))), by, sums);
    }
    return joined;
  }

 private:
  __device__ static int thread() {
    return static_cast<int>(threadIdx.x % kThreads);
  }
  __device__ int place_of(int slot) const {
    return slot * kConfig.consumers + consumer_;
  }
  __device__ float4* sums_at(int place) const {
    return reinterpret_cast<float4*>(tail_.sums) + std::int64_t{place} * (kThreads * kSums / 4) +
           thread();
  }
  __device__ float4 rows_of(int split) const {
    return __ldcg(tail_.rows + place_of(splits_.slot_of(split)) * kThreads + thread());
  }
  __device__ static void add(const float4* kept, const float (&by)[2], float (&sums)[kSums]) {
#pragma unroll
    for (int j = 0; j < kSums / 4; ++j) {
      const float4 four = __ldcg(kept + j * kThreads);
      sums[4 * j] += four.x * by[0];
      sums[4 * j + 1] += four.y * by[0];
      sums[4 * j + 2] += four.z * by[1];
      sums[4 * j + 3] += four.w * by[1];
    }
  }

  const TailSplits& tail_;
  const TileSplits& splits_;
  const int consumer_;
};

}  // namespace quire::cuda
