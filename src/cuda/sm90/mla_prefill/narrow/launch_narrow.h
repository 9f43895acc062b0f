// SPDX-License-Identifier: Apache-2.0
// The compiled attention kernels with products of e4m3: one file in variants/ for each.
#pragma once

#include "cuda/common/prefill_attention/prefill_launch.h"
#include "cuda/common/prefill_attention/variants.h"
#include "cuda/sm90/mla_prefill/chained.h"
#include "cuda/sm90/mla_prefill/projected_keys.h"

namespace quire::cuda::sm90::mla_prefill {

template <DType kDType> struct NarrowAttention {
  static constexpr PrefillConfig kConfig = chained(NarrowD192V128<kDType, Scores::scaled>::kConfig);
};

template <typename Variant>
void launch_narrow_attention(const PrefillParams& params, const ProjectedKeys& keys,
                             const PrefillLaunch& launch);

}  // namespace quire::cuda::sm90::mla_prefill
