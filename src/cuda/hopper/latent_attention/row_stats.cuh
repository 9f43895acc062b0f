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

}  // namespace quire::cuda::hopper
