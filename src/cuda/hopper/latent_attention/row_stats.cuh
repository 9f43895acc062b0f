// SPDX-License-Identifier: Apache-2.0
// What a thread knows of its two rows when their keys are done: rows 8 apart, the same in all threads
// of a quad.
#pragma once

#include "cuda/hopper/flash_attention/prefill/softmax.cuh"
#include "cuda/hopper/latent_attention/params.h"

namespace quire::cuda::hopper {

// Maxima in powers of two, -inf where a row saw no key.
struct RowStats {
  float max[2];
  float sum[2];
};

__device__ inline RowStats row_stats(const RowSoftmax& softmax, float to_log2) {
  RowStats stats;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    stats.max[i] = softmax.max[i] * to_log2;
    stats.sum[i] = quad_sum(softmax.sum[i]);
  }
  return stats;
}

// What a sum taken relative to `from` is worth relative to `to` ≥ `from`; nothing, where no key was
// seen.
__device__ inline float rebased(float from, float to) {
  return from == -INFINITY ? 0.0F : exp2_approx(from - to);
}

struct RowEnd {
  float factor;  // of the sums
  float lse;
};

// The sink is a key without a value.
__device__ inline RowEnd end_row(const LatentOutputs& outputs, int head, float max, float sum) {
  const float sink =
      outputs.sinks != nullptr ? outputs.sinks[head * outputs.sinks_stride] * kLog2e : -INFINITY;
  const float top = fmaxf(max, sink);
  if (top == -INFINITY) return {.factor = 0.0F, .lse = -INFINITY};
  const float weight = rebased(max, top);
  const float total = sum * weight + rebased(sink, top);
  return {.factor = weight / total, .lse = (top + log2f(total)) * kLn2};
}

}  // namespace quire::cuda::hopper
