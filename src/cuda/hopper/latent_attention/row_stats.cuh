// SPDX-License-Identifier: Apache-2.0
// What a thread knows of its two rows when their keys are done: rows 8 apart, the same in all threads
// of a quad.
#pragma once

#include "cuda/hopper/flash_attention/prefill/softmax.cuh"
#include "cuda/hopper/flash_attention/row_end.cuh"
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

}  // namespace quire::cuda::hopper
