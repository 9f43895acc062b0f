// SPDX-License-Identifier: Apache-2.0
// A warpgroup's sums of one half of the columns, to the output or to pieces that are merged later.
#pragma once

#include "cuda/sm90/sparse_mla/params.h"
#include "cuda/sm90/sparse_mla/row_softmax.cuh"

namespace quire::cuda::sm90::sparse_mla {

// Rows of the item that the calling thread holds: this one and the eighth after it.
__device__ inline int first_row_of_thread() {
  const unsigned thread = threadIdx.x % SparseConfig::kWarpgroup;
  return static_cast<int>(thread / 32 * 16 + thread % 32 / 4);
}

// Four threads that share a row have a word each of four blocks; afterwards each has one block whole.
// (As the words lie, a store would write 16 bytes of each of eight rows.)
__device__ inline void gather_block(std::uint32_t (&words)[4]) {
  const bool is_odd = (threadIdx.x & 1) != 0;
#pragma unroll
  for (int m = 0; m < 4; m += 2) {
    const std::uint32_t got = __shfl_xor_sync(0xffffffff, is_odd ? words[m] : words[m + 1], 1);
    (is_odd ? words[m] : words[m + 1]) = got;
  }
  const bool is_high = (threadIdx.x & 2) != 0;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    const std::uint32_t got = __shfl_xor_sync(0xffffffff, is_high ? words[m] : words[m + 2], 2);
    (is_high ? words[m] : words[m + 2]) = got;
  }
}

// A row of sums · factor from `to` on. Factor 0: zeros, whatever the sums are. By whole warps;
// `is_there` false: nothing is written.
template <DType kDType>
__device__ inline void store_row(const HalfSums& sums, int i, float factor, std::byte* to,
                                 bool is_there) {
  const auto scaled = [factor](float x) { return factor == 0.0F ? 0.0F : x * factor; };
  const auto thread = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int j = 0; j < HalfSums::kPairs; j += 4) {
    if constexpr (kDType == DType::f32) {
#pragma unroll
      for (int k = j; k < j + 4; ++k) {
        const float2 pair = sums.pair(i, k);
        if (is_there) {
          reinterpret_cast<float2*>(to)[4 * k + thread] = {scaled(pair.x), scaled(pair.y)};
        }
      }
    } else {
      std::uint32_t words[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float2 pair = sums.pair(i, j + k);
        words[k] = pack_pair<kDType>(scaled(pair.x), scaled(pair.y));
      }
      gather_block(words);
      if (is_there) {
        reinterpret_cast<uint4*>(to)[j + thread] = {words[0], words[1], words[2], words[3]};
      }
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
      const bool is_there = item.first_head + row < params.work.heads;
      const float factor = i == 0 ? factors.x : factors.y;
      if (item.is_piece()) {
        store_row<DType::f32>(sums, i, 1.0F, piece_address(row), is_there);
      } else if (params.output.dtype == DType::bf16) {
        store_row<DType::bf16>(sums, i, factor, output_address(row, 2), is_there);
      } else if (params.output.dtype == DType::f16) {
        store_row<DType::f16>(sums, i, factor, output_address(row, 2), is_there);
      } else {
        store_row<DType::f32>(sums, i, factor, output_address(row, 4), is_there);
      }
    }
  }

 private:
  __device__ std::byte* piece_address(int row) const {
    const std::int64_t line = std::int64_t{item.piece} * SparseConfig::kHeads + row;
    return reinterpret_cast<std::byte*>(params.pieces.sums + line * SparseConfig::kLatent +
                                        first_column);
  }
  __device__ std::byte* output_address(int row, int bytes) const {
    const AttendOutput& output = params.output;
    return output.out + item.token * output.token_bytes +
           std::int64_t{item.first_head + row} * output.head_bytes + first_column * bytes;
  }
};

// A row's LSE, or what the merge has to know of it. Returns the factor of its sums.
__device__ inline float finish_item_row(const SparseParams& params, const ItemNote& item, int i,
                                        float base, float sum) {
  const int row = first_row_of_thread() + 8 * i;
  const int head = item.first_head + row;
  if (head >= params.work.heads) return 0.0F;
  const bool is_first = threadIdx.x % 4 == 0;
  if (item.is_piece()) {
    const std::int64_t line = std::int64_t{item.piece} * SparseConfig::kHeads + row;
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

}  // namespace quire::cuda::sm90::sparse_mla
