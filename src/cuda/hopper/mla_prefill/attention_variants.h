// SPDX-License-Identifier: Apache-2.0
// The compiled attention kernels of the branch: one file in variants/ for each way of scoring.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/hopper/flash_attention/prefill/launch_prefill.h"
#include "cuda/hopper/flash_attention/prefill/params.h"
#include "cuda/hopper/flash_attention/prefill/variants.h"
#include "cuda/hopper/mla_prefill/chained.h"
#include "cuda/hopper/mla_prefill/projected_keys.h"

namespace quire::cuda::hopper {

template <DType kDType, Scores kScores> struct ProjectedAttention {
  static constexpr PrefillConfig kConfig = chained(PrefillD192V128<kDType, kScores>::kConfig);
};

template <typename Variant>
void launch_projected(const PrefillParams& params, const ProjectedKeys& keys,
                      const PrefillLaunch& launch);

}  // namespace quire::cuda::hopper
