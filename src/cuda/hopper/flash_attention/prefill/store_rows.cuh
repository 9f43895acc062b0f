// SPDX-License-Identifier: Apache-2.0
// A finished tile's rows: divided by their sums, turned in the tile's own q buffer into whole rows,
// stored 16 bytes a thread. Every warp keeps to its own 16 rows.
#pragma once

#include "cuda/hopper/flash_attention/prefill/query_rows.cuh"
#include "cuda/hopper/flash_attention/prefill/shared.cuh"

namespace quire::cuda::hopper {

// 1 / denominator, and the LSE where asked for. The sink is a key without a value.
template <PrefillConfig kConfig>
__device__ inline float finish_row(const PrefillParams& params, const PrefillTile& tile,
                                   const QueryRows<kConfig>& rows, const RowSoftmax& softmax,
                                   float to_log2, int i) {
  float sum = quad_sum(softmax.sum[i]);
  const bool has_keys = softmax.max[i] != -INFINITY;
  float offset = has_keys ? softmax.max[i] * to_log2 : 0.0F;
  const bool is_stored = rows.token[i] < tile.tokens;
  if (params.scores.sinks != nullptr && is_stored) {
    const float sink = params.scores.sinks[rows.head[i] * params.scores.sinks_stride] * kLog2e;
    if (!has_keys) offset = sink;
    sum += exp2_approx(sink - offset);
  }
  const PrefillOutputs& outputs = params.outputs;
  if (outputs.lse != nullptr && is_stored && threadIdx.x % 4 == 0) {
    const std::int64_t token = tile.first_row + rows.token[i];
    outputs.lse[token * outputs.lse_token_stride + rows.head[i] * outputs.lse_head_stride] =
        (offset + log2f(sum)) * kLn2;
  }
  return has_keys ? 1.0F / sum : 0.0F;
}

// The warp's part of a slab: 16 rows of 128 bytes, swizzled.
__device__ inline std::byte* swizzled(std::byte* slab, int row, int chunk) {
  return slab + row * kRowBytes + ((chunk ^ (row & 7)) << 4);
}

template <int kWords>
__device__ inline void stage_rows(const std::uint32_t (&words)[kWords], std::byte* slabs,
                                  int slab_bytes) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int pair = 0; pair < kWords / 4; ++pair) {  // 16 columns
    const int chunk = 2 * pair + lane / 16;
    const std::byte* row = swizzled(slabs + chunk / 8 * slab_bytes, lane % 16, chunk % 8);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     static_cast<std::uint32_t>(__cvta_generic_to_shared(row))),
                 "r"(words[4 * pair]), "r"(words[4 * pair + 1]), "r"(words[4 * pair + 2]),
                 "r"(words[4 * pair + 3])
                 : "memory");
  }
  __syncwarp();
}

template <PrefillConfig kConfig>
__device__ void store_staged(const PrefillParams& params, const PrefillTile& tile,
                             std::byte* slabs, int first_row) {
  constexpr int kChunks = kConfig.value_dim / 8;  // of a row, 16 bytes each
  const PrefillOutputs& outputs = params.outputs;
  const int heads_log2 = params.tile_heads_log2;
#pragma unroll
  for (int at = static_cast<int>(threadIdx.x % 32); at < 16 * kChunks; at += 32) {
    const int row = at / kChunks;
    const int chunk = at % kChunks;
    const int token = tile.first_token + ((first_row + row) >> heads_log2);
    if (token >= tile.tokens) continue;
    const int head = (tile.head_tile << heads_log2) + ((first_row + row) & ((1 << heads_log2) - 1));
    const auto* staged = reinterpret_cast<const uint4*>(
        swizzled(slabs + chunk / 8 * PrefillShared<kConfig>::kQuerySlabBytes, row, chunk % 8));
    auto* out = reinterpret_cast<uint4*>(
        outputs.out + (tile.first_row + token) * outputs.token_stride_bytes +
        head * outputs.head_stride_bytes);
    __stcs(out + chunk, *staged);
  }
}

// `row`: the warpgroup's first in the tile.
template <PrefillConfig kConfig>
__device__ void store_rows(const PrefillParams& params, const PrefillTile& tile,
                           const QueryRows<kConfig>& rows, const RowSoftmax& softmax,
                           float to_log2, float (&sums)[kConfig.value_dim / 2], std::byte* q,
                           int row) {
  const float by[2] = {finish_row<kConfig>(params, tile, rows, softmax, to_log2, 0),
                       finish_row<kConfig>(params, tile, rows, softmax, to_log2, 1)};
  scale_rows(sums, by);
  std::uint32_t words[kConfig.value_dim / 4];
  pack<kConfig.dtype>(sums, words);
  const int first_row = row + static_cast<int>(threadIdx.x % 128 / 32) * 16;
  std::byte* slabs = q + first_row * kRowBytes;
  stage_rows(words, slabs, PrefillShared<kConfig>::kQuerySlabBytes);
  store_staged<kConfig>(params, tile, slabs, first_row);
}

}  // namespace quire::cuda::hopper
