// SPDX-License-Identifier: Apache-2.0
// The compiled attention kernels with products of e4m3: one file in variants/ for each.
#pragma once

#include "cuda/common/prefill_attention/prefill_launch.h"
#include "cuda/common/prefill_attention/variants.h"
#include "cuda/sm90/mla_prefill/chained.h"
#include "cuda/sm90/mla_prefill/projected_keys.h"

namespace quire::cuda::sm90::mla_prefill {

template <DType kDType> struct Fp8Attention {
  static constexpr PrefillConfig kConfig = chained(Fp8D192V128<kDType, Scores::scaled>::kConfig);
};

template <typename Variant>
void launch_fp8_attention(const PrefillParams& params, const ProjectedKeys& keys,
                          const PrefillLaunch& launch);

}  // namespace quire::cuda::sm90::mla_prefill
