// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/prefill_attention/fp8/round_queries.cuh"
#include "cuda/common/prefill_attention/products.cuh"
#include "cuda/common/prefill_attention/query_rows.cuh"

namespace quire::cuda {

// sums = weights · V over one block. The tensor cores keep 13 bits against the sum they add to:
// sums of more keys are made in fp32 (measured, 4096 positive products: 7.4 % low in one go, 0.05 %
// in sums of 128).
template <PrefillConfig kConfig>
__device__ inline void issue_fp8_values(const std::uint32_t (&weights)[kConfig.block_keys / 8],
                                        const std::byte* values,
                                        float (&sums)[kConfig.value_dim / 2]) {
  static_assert(kConfig.block_keys == kRowBytes);
  using Op = RowWgmma<DType::fp8_e4m3, kConfig.value_dim>;
  const std::uint64_t b = tile_descriptor(values);
#pragma unroll
  for (int step = 0; step < kRowBytes / kStepBytes; ++step) {
    detail::issue<Op>(
        &weights[4 * step], b + step * (kStepBytes >> 4), sums,
        step == 0 ? cute::SM90::GMMA::ScaleOut::Zero : cute::SM90::GMMA::ScaleOut::One,
        std::make_index_sequence<kConfig.value_dim / 2>{});
  }
}

// The same by itself, as a group of products.
template <PrefillConfig kConfig>
__device__ inline void start_fp8_sum(std::uint32_t (&weights)[kConfig.block_keys / 8],
                                     const std::byte* values,
                                     float (&sums)[kConfig.value_dim / 2]) {
  pin(sums);
  pin(weights);
  cute::warpgroup_arrive();
  issue_fp8_values<kConfig>(weights, values, sums);
  cute::warpgroup_commit_batch();
}

// Weights as e4m3, where the product with transposed V takes them from.
//
// The instruction wants four neighbouring keys in a word, a thread has pairs 8 apart: keys are
// taken in the order that makes its pairs neighbours, and V's columns stand in the same order
// (key_at_place() in transpose_values.h). Nothing moves.

template <int kWords, int kScores>
__device__ inline void pack_weights(const float (&scores)[kScores], int first,
                                    std::uint32_t (&weights)[kWords]) {
  // 16 scores are two groups of 8 keys of two rows.
#pragma unroll
  for (int j = first; j < first + 16; j += 8) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      weights[j / 4 + i] = pack_e4m3(scores[j + 2 * i], scores[j + 2 * i + 1],
                                     scores[j + 4 + 2 * i], scores[j + 5 + 2 * i]);
    }
  }
}

// As RowSoftmax::weigh(); beside(part, parts) is done under each part's exponentials.
template <int kScores, typename Beside>
__device__ inline void weigh_fp8(LazySoftmax& softmax, float (&scores)[kScores],
                                 const float (&to_log2)[2], std::uint32_t (&weights)[kScores / 4],
                                 const Beside& beside) {
  constexpr int kPart = 16;
  constexpr int kParts = kScores / kPart;
  const float offset[2] = {softmax.offset<DType::fp8_e4m3>(to_log2[0], 0),
                           softmax.offset<DType::fp8_e4m3>(to_log2[1], 1)};
  float odd[2] = {0.0F, 0.0F};
#pragma unroll
  for (int part = 0; part <= kParts; ++part) {
#pragma unroll
    for (int j = part * kPart; part < kParts && j < (part + 1) * kPart; ++j) {
      scores[j] = exp2_approx(fmaf(scores[j], to_log2[j / 2 % 2], -offset[j / 2 % 2]));
    }
    if (part < kParts) beside(part, kParts);
    if (part == 0) continue;
#pragma unroll
    for (int j = (part - 1) * kPart; j < part * kPart; j += 2) {
      softmax.sum[j / 2 % 2] += scores[j];
      odd[j / 2 % 2] += scores[j + 1];
    }
    pack_weights(scores, (part - 1) * kPart, weights);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) softmax.sum[i] += odd[i];
}

// Keys that all rows of a tile see, where registers are for scores and sums.

// Where V, whose products want neighbouring keys in neighbouring bytes, is transposed.
enum class Transpose : std::uint8_t {
  before,  // once for all rows, in the workspace (transpose_values.h, sm90/flash_attention/prefill/fp8/transpose_ahead.cuh)
  in_place,  // in shared memory, by the warps that load it, for every tile (load_transposed.cuh)
};

// In shared memory, each warp's own, or found anew for each block: that costs 1 % of long tiles, but
// a register less.
template <PrefillConfig kConfig, Transpose kTranspose> class SeenKeys {
 public:
  // By a whole warp, at the beginning of a tile.
  __device__ static void look_over(const PrefillParams& params, const PrefillTile& tile) {
    if constexpr (!kFindsAnew) {
      warps_own() = seen_by_all<kConfig>(params, tile);  // the same by all lanes
      __syncwarp();
    }
  }
  __device__ static KeyInterval by_all(const PrefillParams& params, const PrefillTile& tile) {
    if constexpr (kFindsAnew) {
      return seen_by_all<kConfig>(params, tile);
    } else {
      return warps_own();
    }
  }

 private:
  static constexpr bool kFindsAnew =
      kTranspose == Transpose::in_place && kConfig.ends == Ends::finished;

  __device__ static KeyInterval& warps_own() {
    __shared__ KeyInterval intervals[4 * kConfig.consumers];
    return intervals[threadIdx.x / 32 - 4];
  }
};

}  // namespace quire::cuda
