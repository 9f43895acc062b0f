// SPDX-License-Identifier: Apache-2.0
// The compiled kernels of the branch: attention over projected keys, and up-projections.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/common/matmul/params.h"
#include "cuda/common/matmul/variants.h"
#include "cuda/common/prefill_attention/config.h"
#include "cuda/common/prefill_attention/params.h"
#include "cuda/common/prefill_attention/variants.h"
#include "cuda/sm90/mla_prefill/params.h"

namespace quire::cuda::sm90::mla_prefill {

// The attention kernels of the branch are those of flash_attention for heads of 192 and 128, but for
// their ends: a chunk's rows go on where the chunk before left them.

constexpr PrefillConfig chained(PrefillConfig config) {
  config.ends = Ends::chained;
  return config;
}

// The compiled attention kernels of the branch: one file in variants/ for each way of scoring.

template <DType kDType, Scores kScores> struct ProjectedAttention {
  static constexpr PrefillConfig kConfig = chained(PrefillD192V128<kDType, kScores>::kConfig);
};

template <typename Variant>
void launch_projected(const PrefillParams& params, const ProjectedKeys& keys,
                      const PrefillLaunch& launch);

// The compiled up-projections (src/cuda/variants.cmake). A tile's 256 columns are one head's K
// and V.

using ProjectBf16 = TileN256<DType::bf16>;
using ProjectF16 = TileN256<DType::f16>;
using ProjectFp8 = TileN256<DType::fp8_e4m3, Scaling::blocks>;

// live_rows: on the device; without any the kernel ends at once.
template <typename Variant>
void launch_projection(const TileParams& params, const std::int32_t* live_rows,
                       const TileLaunch& launch);

// The compiled attention kernels with products of e4m3: one file in variants/ for each.

template <DType kDType> struct Fp8Attention {
  static constexpr PrefillConfig kConfig = chained(Fp8D192V128<kDType, Scores::scaled>::kConfig);
};

template <typename Variant>
void launch_fp8_attention(const PrefillParams& params, const ProjectedKeys& keys,
                          const PrefillLaunch& launch);

}  // namespace quire::cuda::sm90::mla_prefill
