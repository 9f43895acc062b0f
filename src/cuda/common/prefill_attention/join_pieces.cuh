// SPDX-License-Identifier: Apache-2.0
// A tile that was cut along its keys (tail_cuts.h): every warpgroup keeps the sums of its rows'
// pieces in memory, as its registers hold them, and the one whose piece comes last puts them
// together, in the order of keys, whoever that is.
#pragma once

#include <cutlass/arch/barrier.h>

#include "cuda/common/prefill_attention/chain_rows.cuh"
#include "cuda/common/softmax/row_end.cuh"

namespace quire::cuda {

template <PrefillConfig kConfig> class PieceStore {
 public:
  static constexpr int kSums = kConfig.value_dim / 2;  // of a thread
  static constexpr int kThreads = 128;

  __device__ PieceStore(const TailPieces& tail, const TilePieces& pieces, int consumer)
      : tail_(tail), pieces_(pieces), consumer_(consumer) {}

  // Maxima in log2 units; a row's sum in the first thread of its quad, 0 in the others.
  __device__ void keep(const RowSoftmax& softmax, const float (&sums)[kSums]) const {
    const int place = place_of(pieces_.slot);
    tail_.rows[place * kThreads + thread()] =
        make_float4(softmax.max[0], softmax.max[1], softmax.sum[0], softmax.sum[1]);
    float4* kept = sums_at(place);
#pragma unroll
    for (int j = 0; j < kSums / 4; ++j) {
      kept[j * kThreads] =
          make_float4(sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]);
    }
  }

  // Whether all pieces of the tile are there. `answer`: in shared memory, for all threads.
  __device__ bool is_last(bool& answer, std::uint32_t barrier) const {
    __threadfence();
    cutlass::arch::NamedBarrier::sync(kThreads, barrier);
    if (thread() == 0) {
      answer = atomicAdd(tail_.arrivals + place_of(pieces_.first_slot), 1) == pieces_.count - 1;
      __threadfence();
    }
    cutlass::arch::NamedBarrier::sync(kThreads, barrier);
    return answer;
  }

  __device__ RowSoftmax join(float (&sums)[kSums]) const {
    RowSoftmax joined;
#pragma unroll 1
    for (int piece = 0; piece < pieces_.count; ++piece) {
      const float4 kept = rows_of(piece);
      joined.max[0] = fmaxf(joined.max[0], kept.x);
      joined.max[1] = fmaxf(joined.max[1], kept.y);
    }
#pragma unroll
    for (float& sum : sums) sum = 0.0F;
#pragma unroll 1
    for (int piece = 0; piece < pieces_.count; ++piece) {
      const float4 kept = rows_of(piece);
      const float by[2] = {rebased(kept.x, joined.max[0]), rebased(kept.y, joined.max[1])};
      joined.sum[0] += kept.z * by[0];
      joined.sum[1] += kept.w * by[1];
      add(sums_at(place_of(pieces_.slot_of(piece))), by, sums);
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
  __device__ float4 rows_of(int piece) const {
    return __ldcg(tail_.rows + place_of(pieces_.slot_of(piece)) * kThreads + thread());
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

  const TailPieces& tail_;
  const TilePieces& pieces_;
  const int consumer_;
};

}  // namespace quire::cuda
