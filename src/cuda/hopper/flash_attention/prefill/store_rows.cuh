// SPDX-License-Identifier: Apache-2.0
// A finished tile's rows, from registers: divided by their sums, turned within quads of threads so
// that each stores 16 bytes at a time.
#pragma once

#include "cuda/hopper/flash_attention/prefill/query_rows.cuh"

namespace quire::cuda::hopper {

// 1 / denominator, and the LSE where asked for. The sink is a key without a value.
__device__ inline float finish_row(const PrefillParams& params, const PrefillTile& tile,
                                   const QueryRow& row, const RowSoftmax& softmax, float to_log2,
                                   int i) {
  float sum = quad_sum(softmax.sum[i]);
  const bool has_keys = softmax.max[i] != -INFINITY;
  float offset = has_keys ? softmax.max[i] * to_log2 : 0.0F;
  const bool is_stored = row.token < tile.tokens;
  if (params.scores.sinks != nullptr && is_stored) {
    const float sink = params.scores.sinks[row.head * params.scores.sinks_stride] * kLog2e;
    if (!has_keys) offset = sink;
    sum += exp2_approx(sink - offset);
  }
  const PrefillOutputs& outputs = params.outputs;
  if (outputs.lse != nullptr && is_stored && threadIdx.x % 4 == 0) {
    const std::int64_t token = tile.first_row + row.token;
    outputs.lse[token * outputs.lse_token_stride + row.head * outputs.lse_head_stride] =
        (offset + log2f(sum)) * kLn2;
  }
  return has_keys ? 1.0F / sum : 0.0F;
}

// Word k of thread c goes to word c of thread k, within a quad.
__device__ inline void transpose_quad(std::uint32_t (&words)[4]) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool is_upper = (threadIdx.x & bit) != 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if ((k & bit) != 0) continue;
      std::uint32_t& low = words[k];
      std::uint32_t& high = words[k | bit];
      const std::uint32_t other = __shfl_xor_sync(0xffffffff, is_upper ? low : high, bit);
      (is_upper ? low : high) = other;
    }
  }
}

// Row i (0, 1) of the thread's two. `out`: the row, or null where it is not stored.
template <DType kDType, int kSums>
__device__ inline void store_row(const float (&sums)[kSums], int i, float by, std::byte* out) {
  constexpr int kChunks = kSums / 4;  // of a row, 8 numbers each
  const auto lane = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int first = 0; first < kChunks; first += 4) {
    std::uint32_t words[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int j = 4 * (first + k < kChunks ? first + k : first) + 2 * i;
      words[k] = pack_pair<kDType>(sums[j] * by, sums[j + 1] * by);
    }
    transpose_quad(words);
    if (out != nullptr && first + lane < kChunks) {
      __stcs(reinterpret_cast<uint4*>(out) + first + lane,
             make_uint4(words[0], words[1], words[2], words[3]));
    }
  }
}

// `row`: the thread's first; the second stands 8 below it.
template <DType kDType, int kSums>
__device__ inline void store_rows(const PrefillParams& params, const PrefillTile& tile, int row,
                                  const RowSoftmax& softmax, float to_log2,
                                  const float (&sums)[kSums]) {
  const PrefillOutputs& outputs = params.outputs;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const QueryRow at = query_row(params, tile, row + 8 * i);
    const float by = finish_row(params, tile, at, softmax, to_log2, i);
    std::byte* out = outputs.out + (tile.first_row + at.token) * outputs.token_stride_bytes +
                     at.head * outputs.head_stride_bytes;
    store_row<kDType>(sums, i, by, at.token < tile.tokens ? out : nullptr);
  }
}

}  // namespace quire::cuda::hopper
