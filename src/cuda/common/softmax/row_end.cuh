// SPDX-License-Identifier: Apache-2.0
// The end of a row's softmax, from the sums over all its keys or over pieces of them. Maxima are in
// powers of two, -inf where no key was seen.
#pragma once

#include <cstdint>

#include "cuda/common/softmax/exponents.cuh"

namespace quire::cuda {

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
