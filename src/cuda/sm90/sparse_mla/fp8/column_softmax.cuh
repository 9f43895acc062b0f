// SPDX-License-Identifier: Apache-2.0
// The softmax over keys that are rows: a thread has two keys (8 apart) and, of every eight heads, two.
//
// Weights are f16 and carry their key's power of two, 2^exponent, since that is what its values are
// multiplied by: base follows the largest (score + exponent) of a head, so that nothing leaves f16's
// range whatever the scales. Sums of weights leave it out again. A head's base follows its maximum only
// when a weight would pass 2^14; the warpgroup votes on that at the barrier that it needs anyway.
#pragma once

#include "cuda/common/thread/quad_reduce.cuh"
#include "cuda/sm90/sparse_mla/fp8/key_factors.cuh"
#include "cuda/sm90/sparse_mla/fp8/shared.cuh"

namespace quire::cuda::sm90::sparse_mla {

// A barrier of one warpgroup that tells all whether one of them said yes. Below the barriers of
// NamedBarrier.
__device__ inline bool vote_any(int warpgroup, bool is_so) {
  std::uint32_t any;
  asm volatile(
      "{\n"
      ".reg .pred p, q;\n"
      "setp.ne.u32 p, %1, 0;\n"
      "barrier.cta.red.or.pred q, %2, 128, p;\n"
      "selp.u32 %0, 1, 0, q;\n"
      "}\n"
      : "=r"(any)
      : "r"(static_cast<std::uint32_t>(is_so)), "r"(warpgroup + 1)
      : "memory");
  return any != 0;
}

template <typename Variant> struct ColumnSoftmax {
  static constexpr Fp8Config kConfig = Variant::kConfig;
  static constexpr int kColumns = kConfig.thread_heads();
  static constexpr int kScores = 2 * kColumns;
  static constexpr float kNoBase = -3.402823466e38F;  // below every score, and no infinity
  static constexpr float kSet = 6.0F;    // the largest weight is 2^6 when a base is set,
  static constexpr float kRise = 14.0F;  // and never more than 2^14

  float* bases;           // of the warpgroup's heads, in powers of two; in shared memory
  float total[kColumns];  // of the weights of this thread's keys

  // Before a barrier of the warpgroup.
  __device__ void reset() {
    const auto thread = static_cast<int>(threadIdx.x % Fp8Config::kWarpgroup);
    if (thread < kConfig.heads) bases[thread] = kNoBase;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) total[c] = 0.0F;
  }

  // Column c of a thread is head 8 (c / 2) + 2 (lane % 4) + c % 2; scores[4j + 2i + e] is of key i and
  // column 2j + e.
  __device__ static int head_of(int column) {
    return column / 2 * 8 + static_cast<int>(threadIdx.x % 4) * 2 + column % 2;
  }

  // Products into powers of two; returns whether one is too large for its base.
  __device__ bool place(float (&scores)[kScores], const KeyFactors (&keys)[2],
                        const bool (&is_there)[2], float to_log2,
                        const float* query_factors) const {
    const float by[2] = {keys[0].score * to_log2, keys[1].score * to_log2};
    float most = -INFINITY;
#pragma unroll
    for (int j = 0; j < kColumns / 2; ++j) {
      const float2 heads = *reinterpret_cast<const float2*>(query_factors + head_of(2 * j));
      const float2 base = *reinterpret_cast<const float2*>(bases + head_of(2 * j));
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        float& score = scores[4 * j + k];
        const int i = k / 2;
        const float power = fmaf(score * (k % 2 == 0 ? heads.x : heads.y), by[i], keys[i].exponent);
        score = is_there[i] ? power : -INFINITY;
        most = fmaxf(most, score - (k % 2 == 0 ? base.x : base.y));
      }
    }
    return most > kRise;
  }

  // Their weights, stored as rows of heads; added: this tile's part of the totals.
  __device__ void weigh(const float (&scores)[kScores], const KeyFactors (&keys)[2],
                        std::byte* weights, float (&added)[kColumns]) const {
    std::uint32_t words[kColumns];  // [i][j]: as four matrices of 8 keys × 8 heads lie
#pragma unroll
    for (int j = 0; j < kColumns / 2; ++j) {
      const float2 base = *reinterpret_cast<const float2*>(bases + head_of(2 * j));
      float parts[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        parts[k] = exp2_approx(scores[4 * j + k] - (k % 2 == 0 ? base.x : base.y));
      }
      added[2 * j] = fmaf(parts[0], keys[0].unit, parts[2] * keys[1].unit);
      added[2 * j + 1] = fmaf(parts[1], keys[0].unit, parts[3] * keys[1].unit);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        words[2 * j + i] = pack_pair<DType::f16>(parts[2 * i] * keys[i].mantissa,
                                                 parts[2 * i + 1] * keys[i].mantissa);
      }
    }
    store(words, weights);
  }

  // New bases; keep: what to multiply earlier sums by. By the whole warpgroup.
  template <typename Sync>
  __device__ void rise(const float (&scores)[kScores], float (*tops)[kConfig.heads],
                       float (&keep)[kColumns], const Sync& sync) {
    const auto lane = static_cast<int>(threadIdx.x % 32);
    const auto warp = static_cast<int>(threadIdx.x / 32 % Fp8Config::kWarps);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int at = c / 2 * 4 + c % 2;
      const float top = column_max(fmaxf(scores[at], scores[at + 2]));
      if (lane < 4) tops[warp][head_of(c)] = top;
    }
    sync();
    float risen[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int head = head_of(c);
      const float top =
          fmaxf(fmaxf(tops[0][head], tops[1][head]), fmaxf(tops[2][head], tops[3][head]));
      const float base = bases[head];
      risen[c] = top - base > kSet ? top - kSet : base;
      keep[c] = exp2_approx(base - risen[c]);
      total[c] *= keep[c];
    }
    sync();
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (warp == 0 && lane < 4) bases[head_of(c)] = risen[c];
    }
    sync();
  }

 private:
  // A warp's 16 keys × all heads, transposed on the way.
  __device__ static void store(const std::uint32_t (&words)[kColumns], std::byte* weights) {
    const auto lane = static_cast<int>(threadIdx.x % 32);
    const auto warp = static_cast<int>(threadIdx.x / 32 % Fp8Config::kWarps);
    // Lane l names head l % 8 of matrix l / 8: keys 8 (l / 8 % 2), heads 8 (l / 16).
    const int head = lane / 16 * 8 + lane % 8;
    const int piece = warp * 2 + lane / 8 % 2;
    const auto to = static_cast<std::uint32_t>(
        __cvta_generic_to_shared(weights + head * kRowBytes + ((piece ^ (head % 8)) * 16)));
#pragma unroll
    for (int j = 0; j < kColumns; j += 4) {
      asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                       to + j / 4 * 16 * kRowBytes),
                   "r"(words[j]), "r"(words[j + 1]), "r"(words[j + 2]), "r"(words[j + 3])
                   : "memory");
    }
  }
};

}  // namespace quire::cuda::sm90::sparse_mla
