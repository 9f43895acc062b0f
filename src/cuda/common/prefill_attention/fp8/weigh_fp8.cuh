// SPDX-License-Identifier: Apache-2.0
// Weights as e4m3, where the product with transposed V takes them from.
//
// The instruction wants four neighbouring keys in a word, a thread has pairs 8 apart: keys are
// taken in the order that makes its pairs neighbours, and V's columns stand in the same order
// (key_at_place() in transpose_values.h). Nothing moves.
#pragma once

#include "cuda/common/prefill_attention/fp8/round_queries.cuh"
#include "cuda/common/prefill_attention/lazy_softmax.cuh"

namespace quire::cuda {

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

}  // namespace quire::cuda
