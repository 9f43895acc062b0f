// SPDX-License-Identifier: Apache-2.0
// A tile's scores become codes of P in shared memory, for the warps of one group. A thread has two rows, 8 apart, and of
// every 8 keys two neighbours.
//
// Weights are exp2(score − reference). A row's reference stands kLift powers below its maximum, so that the largest
// weights are near the top of e4m3, and follows only a maximum that passes kTop: O is then seldomer scaled again.
#pragma once

#include "cuda/common/softmax/softmax.cuh"
#include "cuda/sm90/mla_decode/fp8_pingpong/shared.cuh"
#include "cuda/sm90/mla_decode/latent/shared.cuh"

namespace quire::cuda::sm90::mla_decode {

template <Fp8PingpongConfig kConfig> class WeighCodes {
 public:
  using Shared = Fp8PingpongShared<kConfig>;
  using Scores = float[kTileScores];

  // `row`: of the CTA, the thread's first. `group`: also the parity of its tiles.
  __device__ WeighCodes(Shared& shared, int group, int row)
      : shared_(shared), group_(group), row_(row) {}

  // Before a work tile's first tile.
  __device__ void begin() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      ref_[i] = -INFINITY;
      sum_[i] = 0.0F;
    }
  }
  __device__ const float (&refs() const)[2] {
    return ref_;
  }
  // Of this thread's weights, relative to refs().
  __device__ const float (&sums() const)[2] {
    return sum_;
  }

  // Scores of a tile, which become weights; hidden ones are -inf. `before`: the references that the tile before left.
  // `to_log2`: from scores to powers of two. `slot`: of the tile's factors.
  __device__ void weigh(Scores& scores, float (&to_log2)[2], const float (&before)[2], int slot) {
    bool rises = false;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float top = quad_max(own_highest(scores, i)) * to_log2[i];
      const bool follows = top > before[i] + kTop || before[i] == -INFINITY;
      const float now = follows ? top - kLift : before[i];
      const float factor = before[i] == -INFINITY ? 1.0F : exp2_approx(before[i] - now);
      // What this group's sums are worth: the other group's tile may have raised the reference too.
      sum_[i] *= ref_[i] == -INFINITY ? 1.0F : exp2_approx(ref_[i] - now);
      ref_[i] = now;
      rises |= factor != 1.0F;
      if (threadIdx.x % 4 == 0) {
        shared_.factors[slot][row_ + 8 * i] = factor;
        shared_.refs[row_ + 8 * i] = now;
      }
    }
    rises = __any_sync(0xffffffff, rises);
    if (threadIdx.x % 32 == 0) shared_.rises[slot][threadIdx.x % 128 / 32] = rises ? 1 : 0;
    shared_.refs_full[group_][threadIdx.x % 128 / 32].arrive();
    if (!is_near(ref_[0]) || !is_near(ref_[1])) subtract_far_references(scores, to_log2);
    exponentiate(scores, to_log2);
  }

  // Weights times the scales of the keys' values. `stage`: of the tile.
  __device__ void store(const Scores& weights, int stage) const {
    if constexpr (kConfig.kind == Fp8RowKind::uniform) {
      store_group(weights, 0);
    } else {
#pragma unroll
      for (int g = 0; g < kConfig.scale_groups(); ++g) {
        Scores scaled;
#pragma unroll
        for (int j = 0; j < kTileScores; j += 4) {
          const float2 by = ratios(stage, g, j / 4);
#pragma unroll
          for (int i = 0; i < 4; i += 2) {
            scaled[j + i] = weights[j + i] * by.x;
            scaled[j + i + 1] = weights[j + i + 1] * by.y;
          }
        }
        store_group(scaled, g);
      }
    }
  }

  // Of the thread's two of 8 keys.
  __device__ float2 ratios(int stage, int group, int eight) const {
    const auto column = static_cast<int>(threadIdx.x % 4) * 2;
    return *reinterpret_cast<const float2*>(&shared_.ratios[stage][group][8 * eight + column]);
  }

 private:
  // Of this thread's scores.
  __device__ static float own_highest(const Scores& scores, int i) {
    float highest[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float* own = &scores[8 * k + 2 * i];
      highest[k] = fmaxf(fmaxf(own[0], own[1]), fmaxf(own[4], own[5]));
    }
    return fmaxf(fmaxf(highest[0], highest[1]), fmaxf(highest[2], highest[3]));
  }

  static constexpr float kLift = kConfig.terms == 2 ? 5.0F : 8.0F;
  // How far above its reference a maximum may be. With one term, where a weight has four digits, the largest is a power of
  // two and exact; with two it may be up to 2^8.75 = 431, and e4m3 ends at 448.
  static constexpr float kTop = kConfig.terms == 2 ? 8.75F : kLift;

  // Scores of rows whose reference exponentiate() would take off with an error that is too large (is_near()).
  __device__ void subtract_far_references(Scores& scores, float (&to_log2)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (is_near(ref_[i]) || ref_[i] == -INFINITY) continue;
#pragma unroll
      for (int j = 2 * i; j < kTileScores; j += 4) {
        scores[j] = __fmul_rn(scores[j], to_log2[i]) - ref_[i];
        scores[j + 1] = __fmul_rn(scores[j + 1], to_log2[i]) - ref_[i];
      }
      to_log2[i] = 1.0F;
    }
  }

  __device__ void exponentiate(Scores& scores, const float (&to_log2)[2]) {
    const float offset[2] = {is_near(ref_[0]) ? ref_[0] : 0.0F, is_near(ref_[1]) ? ref_[1] : 0.0F};
    float even[2] = {0.0F, 0.0F};
    float odd[2] = {0.0F, 0.0F};
#pragma unroll
    for (int j = 0; j < kTileScores; j += 2) {
      const int i = j / 2 % 2;
      scores[j] = exp2_approx(fmaf(scores[j], to_log2[i], -offset[i]));
      scores[j + 1] = exp2_approx(fmaf(scores[j + 1], to_log2[i], -offset[i]));
      even[i] += scores[j];
      odd[i] += scores[j + 1];
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) sum_[i] += even[i] + odd[i];
  }

  __device__ void store_group(const Scores& weights, int g) const {
    const auto lane = static_cast<int>(threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int m = 0; m < Fp8Pingpong::kKeys / 16; ++m) {
        const float* own = &weights[8 * m + 2 * i];
        const CodedFour<kConfig.terms> four(own[0], own[1], own[4], own[5]);
#pragma unroll
        for (int term = 0; term < kConfig.terms; ++term) {
          *reinterpret_cast<std::uint32_t*>(shared_.weights[group_][g][term] +
                                            tail_offset(row_ + 8 * i, m) + lane * 4) =
              four.words[term];
        }
      }
    }
  }

  Shared& shared_;
  const int group_;
  const int row_;
  float ref_[2];
  float sum_[2];
};

}  // namespace quire::cuda::sm90::mla_decode
