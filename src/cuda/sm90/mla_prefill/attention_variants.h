// SPDX-License-Identifier: Apache-2.0
// The compiled attention kernels of the branch: one file in variants/ for each way of scoring.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/common/prefill_attention/params.h"
#include "cuda/common/prefill_attention/prefill_launch.h"
#include "cuda/common/prefill_attention/variants.h"
#include "cuda/sm90/mla_prefill/chained.h"
#include "cuda/sm90/mla_prefill/projected_keys.h"

namespace quire::cuda::sm90::mla_prefill {

template <DType kDType, Scores kScores> struct ProjectedAttention {
  static constexpr PrefillConfig kConfig = chained(PrefillD192V128<kDType, kScores>::kConfig);
};

template <typename Variant>
void launch_projected(const PrefillParams& params, const ProjectedKeys& keys,
                      const PrefillLaunch& launch);

}  // namespace quire::cuda::sm90::mla_prefill
