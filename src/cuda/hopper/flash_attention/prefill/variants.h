// SPDX-License-Identifier: Apache-2.0
// Every compiled prefill kernel: one file in variants/ for each, one row of variant_table.h for the
// planner.
#pragma once

#include "cuda/hopper/flash_attention/prefill/config.h"

namespace quire::cuda::hopper {

template <DType kDType, Scores kScores> struct PrefillD128 {
  static constexpr PrefillConfig kConfig{.dtype = kDType, .scores = kScores};
};

}  // namespace quire::cuda::hopper
