// SPDX-License-Identifier: Apache-2.0
// A warpgroup's sums of one half of the columns, to the output or to pieces that are merged later.
#pragma once

#include "cuda/hopper/sparse_mla/half_sums.cuh"
#include "cuda/hopper/sparse_mla/params.h"
#include "cuda/hopper/sparse_mla/row_softmax.cuh"

namespace quire::cuda::hopper {

// Rows of the item that the calling thread holds: this one and the eighth after it.
__device__ inline int first_row_of_thread() {
  const unsigned thread = threadIdx.x % SparseConfig::kWarpgroup;
  return static_cast<int>(thread / 32 * 16 + thread % 32 / 4);
}

// A row of sums · factor from `to` on, pairs 8 columns apart. Factor 0: zeros, whatever the sums are.
template <DType kDType>
__device__ inline void store_row(const HalfSums& sums, int i, float factor, std::byte* to) {
  constexpr int kBytes = kDType == DType::f32 ? 4 : 2;
#pragma unroll
  for (int j = 0; j < HalfSums::kPairs; ++j) {
    const float2 pair = sums.pair(i, j);
    const float x = factor == 0.0F ? 0.0F : pair.x * factor;
    const float y = factor == 0.0F ? 0.0F : pair.y * factor;
    if constexpr (kDType == DType::f32) {
      *reinterpret_cast<float2*>(to + 8 * j * kBytes) = {x, y};
    } else {
      *reinterpret_cast<std::uint32_t*>(to + 8 * j * kBytes) = pack_pair<kDType>(x, y);
    }
  }
}

struct StoreRows {
  const SparseParams& params;
  const ItemNote& item;
  int first_column;

  __device__ void store(const HalfSums& sums, const float2& factors) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first_row_of_thread() + 8 * i;
      if (item.first_head + row >= params.work.heads) continue;
      const float factor = i == 0 ? factors.x : factors.y;
      if (params.work.pieces > 1) {
        store_row<DType::f32>(sums, i, 1.0F, piece_address(row));
      } else if (params.output.dtype == DType::bf16) {
        store_row<DType::bf16>(sums, i, factor, output_address(row, 2));
      } else if (params.output.dtype == DType::f16) {
        store_row<DType::f16>(sums, i, factor, output_address(row, 2));
      } else {
        store_row<DType::f32>(sums, i, factor, output_address(row, 4));
      }
    }
  }

 private:
  __device__ int thread_column() const {
    return first_column + static_cast<int>(threadIdx.x % 4) * 2;
  }
  __device__ std::byte* piece_address(int row) const {
    const std::int64_t line = std::int64_t{item.index} * SparseConfig::kHeads + row;
    return reinterpret_cast<std::byte*>(params.pieces.sums + line * SparseConfig::kLatent +
                                        thread_column());
  }
  __device__ std::byte* output_address(int row, int bytes) const {
    const AttendOutput& output = params.output;
    return output.out + item.token * output.token_bytes +
           std::int64_t{item.first_head + row} * output.head_bytes + thread_column() * bytes;
  }
};

// A row's LSE, or what the merge has to know of it. Returns the factor of its sums.
__device__ inline float finish_item_row(const SparseParams& params, const ItemNote& item, int i,
                                        float base, float sum) {
  const int row = first_row_of_thread() + 8 * i;
  const int head = item.first_head + row;
  if (head >= params.work.heads) return 0.0F;
  const bool is_first = threadIdx.x % 4 == 0;
  if (params.work.pieces > 1) {
    const std::int64_t line = std::int64_t{item.index} * SparseConfig::kHeads + row;
    if (is_first) params.pieces.stats[line] = {base, sum};
    return 1.0F;
  }
  const SparseFinish finish = finish_row(base, sum, params.output.sinks, head);
  if (is_first && params.output.lse != nullptr) {
    params.output
        .lse[item.token * params.output.lse_token_stride + head * params.output.lse_head_stride] =
        finish.lse;
  }
  return finish.factor;
}

}  // namespace quire::cuda::hopper
