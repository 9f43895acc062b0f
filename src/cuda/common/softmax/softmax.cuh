// SPDX-License-Identifier: Apache-2.0
// Online softmax in registers: exponentials, softcap, running maximum and sum, and the end of a row.
#pragma once

#include <cstdint>

#include "cuda/common/rows/vec8.cuh"
#include "cuda/common/thread/warp_reduce.cuh"
#include "quire/dtype.h"

namespace quire::cuda {

// Powers of two, in which all scores are weighed.

inline constexpr float kLog2e = 1.4426950408889634F;
inline constexpr float kLn2 = 0.6931471805599453F;

// What is too small for a normal number is 0: one instruction instead of four.
__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// exp2(s · to_log2 - max · to_log2) is one FFMA and one MUFU if the last product is rounded before. Its error, an exponent's
// too, cancels when rows are divided by their sums, until it makes a weight of 1 infinite or 0: beyond 2^20 powers of two
// the kernels take the maximum off the scores first, a tile at a time, on the path that raises a row's reference. False for
// infinities and NaN as well.
__device__ inline bool is_near(float reference) {
  return fabsf(reference) < 0x1p20F;
}

__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));  // right but for the last bit
  return y;
}

// The softmax of one thread's two rows, a block of keys at a time, in registers.

// The highest of a thread's own scores of its two rows, as integers: those have a maximum of three,
// floats of two. The bits of floats compare as integers unless both are negative, so this is right
// unless all of a row's scores are.
template <int kScores>
__device__ inline void highest_bits(const float (&scores)[kScores], int (&highest)[2]) {
  int bits[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int at = k * 2;
    bits[k] = max(__float_as_int(scores[at]), __float_as_int(scores[at + 1]));
#pragma unroll
    for (int j = at + 8; j < kScores; j += 8) {
      bits[k] = max(max(bits[k], __float_as_int(scores[j])), __float_as_int(scores[j + 1]));
    }
  }
  highest[0] = max(bits[0], bits[2]);
  highest[1] = max(bits[1], bits[3]);
}
// The highest of row i, over its four threads.
template <int kScores> __device__ inline float highest_of(const float (&scores)[kScores], int i) {
  float highest = fmaxf(scores[2 * i], scores[2 * i + 1]);
#pragma unroll
  for (int j = 2 * i + 4; j < kScores; j += 4) {
    highest = fmaxf(highest, fmaxf(scores[j], scores[j + 1]));
  }
  return quad_max(highest);
}

// Row i of the thread (i = 0, 1): rows 8 apart. The maximum is in units of `to_log2`; the sum is
// this thread's own columns only, until the end.
struct RowSoftmax {
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.0F, 0.0F};

  // Scores into weights, pairs of 16 bits. An exponential takes some 40 cycles and starts every 8:
  // a sum that follows its exponentials closely waits for each of them (measured: 13 cycles for
  // each). So they are added and packed a part later, under the next part's exponentials.
  template <DType kDType, int kScores>
  __device__ void weigh(float (&scores)[kScores], const float (&to_log2)[2],
                        const float (&offset)[2], std::uint32_t (&weights)[kScores / 2]) {
    constexpr int kPart = 16;
    float odd[2] = {0.0F, 0.0F};
#pragma unroll
    for (int first = 0; first < kScores + kPart; first += kPart) {
#pragma unroll
      for (int j = first; j < first + kPart && j < kScores; ++j) {
        scores[j] = exp2_approx(fmaf(scores[j], to_log2[j / 2 % 2], -offset[j / 2 % 2]));
      }
#pragma unroll
      for (int j = first - kPart; j >= 0 && j < first && j < kScores; j += 2) {
        sum[j / 2 % 2] += scores[j];
        odd[j / 2 % 2] += scores[j + 1];
        weights[j / 2] = pack_pair<kDType>(scores[j], scores[j + 1]);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) sum[i] += odd[i];
  }
};

template <int kSums> __device__ inline void scale_rows(float (&sums)[kSums], const float (&by)[2]) {
#pragma unroll
  for (int j = 0; j < kSums; ++j) sums[j] *= by[j / 2 % 2];
}

template <DType kDType, int kNumbers>
__device__ inline void pack(const float (&numbers)[kNumbers],
                            std::uint32_t (&words)[kNumbers / 2]) {
#pragma unroll
  for (int i = 0; i < kNumbers / 2; ++i) {
    words[i] = pack_pair<kDType>(numbers[2 * i], numbers[2 * i + 1]);
  }
}

// Scores that are capped, in powers of two.

// softcap · tanh(scale · product / softcap) for the products of a row. tanh(x) is 1 - 2 / (1 + e^2x), to fp32's last bits
// beside 1: the instruction's own is good to 11.
class Softcap {
 public:
  // `twice`: 2 · scale / softcap, the scale in powers of two.
  __device__ Softcap(float softcap, float twice) : twice_(twice), cap_(softcap * kLog2e) {}

  __device__ float operator()(float product) const {
    return fmaf(-2.0F * cap_, reciprocal(1.0F + exp2_approx(twice_ * product)), cap_);
  }

 private:
  float twice_;
  float cap_;
};

// The end of a row's softmax, from the sums over all its keys or over splits of them. Maxima are in
// powers of two, -inf where no key was seen.

// What a sum taken relative to `from` is worth relative to `to` ≥ `from`; nothing, where no key was
// seen.
__device__ inline float rebased(float from, float to) {
  return from == -INFINITY ? 0.0F : exp2_approx(from - to);
}

// A key without a value, in powers of two; -inf where there is none. `of` has `sinks` and their stride.
template <typename Sinks> __device__ inline float sink_of(const Sinks& of, int head) {
  return of.sinks != nullptr ? of.sinks[head * of.sinks_stride] * kLog2e : -INFINITY;
}

struct RowEnd {
  float factor;  // of the sums
  float lse;
};

template <typename Sinks>
__device__ inline RowEnd end_row(const Sinks& of, int head, float max, float sum) {
  const float sink = sink_of(of, head);
  // No key, or scores of -inf only. A NaN score is in the sum, whatever the maximum.
  if (max == -INFINITY && sum == 0.0F) return {.factor = 0.0F, .lse = sink * kLn2};
  const float top = fmaxf(max, sink);
  const float weight = rebased(max, top);
  const float total = sum * weight + rebased(sink, top);
  return {.factor = weight / total, .lse = (top + log2f(total)) * kLn2};
}

}  // namespace quire::cuda
