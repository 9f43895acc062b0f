// SPDX-License-Identifier: Apache-2.0
// The compiled attention kernels with products of e4m3: one file in variants/ for each.
#pragma once

#include "cuda/hopper/flash_attention/prefill/config.h"
#include "cuda/hopper/flash_attention/prefill/launch_prefill.h"
#include "cuda/hopper/mla_prefill/projected_keys.h"

namespace quire::cuda::hopper {

template <DType kDType> struct NarrowAttention {
  static constexpr PrefillConfig kConfig{.dtype = kDType,
                                         .cache_dtype = DType::fp8_e4m3,
                                         .head_dim = 192,
                                         .key_stages = 3,
                                         .q_buffers = 1,
                                         .q_parts = 2,
                                         .ends = Ends::chained,
                                         .products = Products::narrow};
};

template <typename Variant>
void launch_narrow_attention(const PrefillParams& params, const ProjectedKeys& keys,
                             const PrefillLaunch& launch);

}  // namespace quire::cuda::hopper
