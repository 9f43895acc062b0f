// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/hopper/mla_prefill/projected_keys.h"

namespace quire::cuda::hopper {

// Where narrow_source.cuh finds K and V of e4m3.
struct NarrowKeys {
  ProjectedKeys rows{};  // (column, head, buffer row) of K; rope: (column, 0, buffer row)
  TensorMap values{};    // (buffer row, column, head): 128 × 128 × 1
};

}  // namespace quire::cuda::hopper
