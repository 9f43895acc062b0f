// SPDX-License-Identifier: Apache-2.0
// What a thread knows of its two rows when their keys are done: rows 8 apart, the same in all threads
// of a quad.
#pragma once

#include "cuda/common/softmax/row_end.cuh"
#include "cuda/common/softmax/softmax.cuh"
#include "cuda/sm90/mla_decode/latent/params.h"

namespace quire::cuda::sm90::mla_decode {

// Maxima in powers of two, -inf where a row saw no key.
struct RowStats {
  float max[2];
  float sum[2];
};

}  // namespace quire::cuda::sm90::mla_decode
