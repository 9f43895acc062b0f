// SPDX-License-Identifier: Apache-2.0
// A softmax whose reference, which all weights of a row are relative to, follows the row's maximum
// lazily: it rises where a score stands so far above it that its weight would leave the products'
// range, and not before. Most blocks then need no exchange between the threads of a row, and sums
// stay as they are. Whether a row's reference rises depends on that row alone.
#pragma once

#include "cuda/common/softmax/softmax.cuh"

namespace quire::cuda {

// A score at the reference weighs 2^kReferenceLog2, one kSlack powers of two above it is the highest
// that is not raised to. Their sum is what the product's dtype holds (f16 65504, e4m3 448); bf16 and
// fp32 sums have room for more.
template <DType kDType> inline constexpr float kReferenceLog2 = 0.0F;
template <> inline constexpr float kReferenceLog2<DType::f16> = 8.0F;
template <> inline constexpr float kReferenceLog2<DType::fp8_e4m3> = 6.0F;
template <DType kDType> inline constexpr float kSlack = 8.0F;
template <> inline constexpr float kSlack<DType::f16> = 7.9F;
template <> inline constexpr float kSlack<DType::fp8_e4m3> = 2.8F;

// `max` of RowSoftmax is the reference: in units of to_log2, -inf in a row that has seen no key.
struct LazySoftmax : RowSoftmax {
  float limit[2] = {-INFINITY, -INFINITY};  // the highest score that leaves the reference as it is

  // 2^(s · to_log2 - offset) is a score's weight.
  template <DType kDType> __device__ float offset(float to_log2, int i) const {
    const float reference = max[i] * to_log2;
    return (is_near(reference) ? reference : 0.0F) - kReferenceLog2<kDType>;
  }

  // As rise(), of the first block: nothing is summed yet.
  template <DType kDType, int kScores>
  __device__ void start(float (&scores)[kScores], const float (&to_log2)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float highest = highest_of(scores, i);
      if (highest > -INFINITY) {
        max[i] = highest;
        limit[i] = limit_of<kDType>(highest, to_log2[i]);
      }
    }
    subtract_far_references(scores, to_log2);
  }

  // Takes one more block's scores in. True where a row's reference rose, for all of the warp: what
  // was summed before is to be multiplied by `keep`, which is set only then.
  template <DType kDType, int kScores>
  __device__ bool rise(float (&scores)[kScores], const float (&to_log2)[2], float (&keep)[2]) {
    int highest[2];
    highest_bits(scores, highest);
    // Bits of floats compare as integers unless both are negative: then they are looked at again.
    const int limits[2] = {__float_as_int(limit[0]), __float_as_int(limit[1])};
    const bool may_rise = highest[0] > limits[0] || highest[1] > limits[1] ||
                          ((highest[0] & limits[0]) | (highest[1] & limits[1])) < 0;
    if (!__any_sync(0xffffffff, may_rise)) return false;
#pragma unroll
    for (int i = 0; i < 2; ++i) raise<kDType>(highest_of(scores, i), to_log2[i], i, keep[i]);
    subtract_far_references(scores, to_log2);
    return true;
  }

 private:
  template <DType kDType> __device__ void raise(float highest, float to_log2, int i, float& keep) {
    const bool rises = highest > fmaxf(limit[i], max[i]);
    keep = rises ? exp2_approx((max[i] - highest) * to_log2) : 1.0F;
    max[i] = rises ? highest : max[i];
    limit[i] = rises ? limit_of<kDType>(highest, to_log2) : limit[i];
    sum[i] *= keep;
  }

  // Of a far reference (is_near()) every score is beyond the limit: each block comes through rise().
  template <DType kDType> __device__ static float limit_of(float reference, float to_log2) {
    return is_near(reference * to_log2) ? reference + __fdividef(kSlack<kDType>, to_log2)
                                        : -INFINITY;
  }

  // What the exponentials would take off with an error that is too large.
  template <int kScores>
  __device__ void subtract_far_references(float (&scores)[kScores],
                                          const float (&to_log2)[2]) const {
    const bool is_far[2] = {max[0] != -INFINITY && !is_near(max[0] * to_log2[0]),
                            max[1] != -INFINITY && !is_near(max[1] * to_log2[1])};
    if (!__any_sync(0xffffffff, is_far[0] || is_far[1])) return;
#pragma unroll
    for (int j = 0; j < kScores; ++j) {
      if (is_far[j / 2 % 2]) scores[j] -= max[j / 2 % 2];
    }
  }
};

// A row's reference, in which form it no longer needs to_log2.
__device__ inline void into_log2_units(RowSoftmax& softmax, const float (&to_log2)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (softmax.max[i] != -INFINITY) softmax.max[i] *= to_log2[i];
  }
}

}  // namespace quire::cuda
