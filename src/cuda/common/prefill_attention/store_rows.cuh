// SPDX-License-Identifier: Apache-2.0
// A finished tile's rows, from registers: divided by their sums, turned within quads of threads so
// that each stores 16 bytes at a time.
#pragma once

#include "cuda/common/prefill_attention/lazy_softmax.cuh"
#include "cuda/common/prefill_attention/query_rows.cuh"
#include "cuda/common/softmax/row_end.cuh"

namespace quire::cuda {

// What the thread's two rows are multiplied by in the end, and their LSE. The sink is a key without
// a value; it may stand far above every score.
struct RowEnds {
  float by[2];
  float offset[2];
  float sum[2];

  __device__ RowEnds(const PrefillParams& params, const RowSoftmax& softmax,
                     const QueryRow (&rows)[2], const float (&to_log2)[2], float headroom) {
    // The headroom leaves the sum, exactly: beside it in the offset it would cost the LSE's last bits.
    const float unit = exp2_approx(-headroom);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum[i] = quad_sum(softmax.sum[i]) * unit;
      // A NaN score is in the sum, and in no maximum.
      const bool has_maximum = softmax.max[i] != -INFINITY;
      const bool has_keys = has_maximum || isnan(sum[i]);
      offset[i] = has_maximum ? softmax.max[i] * to_log2[i] : 0.0F;
      float weight = unit;
      const float sink = sink_of(params.scores, rows[i].head);
      if (sink != -INFINITY) {
        const float top = has_keys ? fmaxf(offset[i], sink) : sink;
        const float keep = exp2_approx(offset[i] - top);
        sum[i] = has_keys ? sum[i] * keep + exp2_approx(sink - top) : 1.0F;
        offset[i] = top;
        weight *= keep;
      }
      by[i] = has_keys ? weight * reciprocal(sum[i]) : 0.0F;
    }
  }
};

// By two threads of a quad, a row each.
__device__ inline void store_lse(const PrefillOutputs& outputs, const PrefillTile& tile,
                                 const QueryRow (&rows)[2], const RowEnds& ends) {
  const bool is_second = threadIdx.x % 2 != 0;
  const QueryRow row{.token = is_second ? rows[1].token : rows[0].token,
                     .head = is_second ? rows[1].head : rows[0].head,
                     .keys = {}};
  if (threadIdx.x % 4 < 2 && row.token < tile.tokens) {
    const std::int64_t token = tile.first_row + row.token;
    outputs.lse[token * outputs.lse_token_stride + row.head * outputs.lse_head_stride] =
        ((is_second ? ends.offset[1] : ends.offset[0]) +
         log2f(is_second ? ends.sum[1] : ends.sum[0])) *
        kLn2;
  }
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
template <PrefillConfig kConfig, int kSums>
__device__ inline void store_rows(const PrefillParams& params, const PrefillTile& tile, int row,
                                  const RowSoftmax& softmax, const float (&to_log2)[2],
                                  const float (&sums)[kSums]) {
  const PrefillOutputs& outputs = params.outputs;
  const QueryRow rows[2] = {query_row(params, tile, row), query_row(params, tile, row + 8)};
  const RowEnds ends(params, softmax, rows, to_log2, kReferenceLog2<kConfig.product_dtype()>);
  if (outputs.lse != nullptr) store_lse(outputs, tile, rows, ends);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    std::byte* out = outputs.out + (tile.first_row + rows[i].token) * outputs.token_stride_bytes +
                     rows[i].head * outputs.head_stride_bytes;
    store_row<kConfig.dtype>(sums, i, ends.by[i], rows[i].token < tile.tokens ? out : nullptr);
  }
}

}  // namespace quire::cuda
