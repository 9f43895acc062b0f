// SPDX-License-Identifier: Apache-2.0
// The compiled up-projections (variants/project.cu). A tile's 256 columns are one head's K
// and V.
#pragma once

#include "cuda/common/matmul/tile_launch.h"
#include "cuda/common/matmul/variants.h"

namespace quire::cuda::sm90::mla_prefill {

using ProjectBf16 = TileN256<DType::bf16>;
using ProjectF16 = TileN256<DType::f16>;
using ProjectFp8 = TileN256<DType::fp8_e4m3, Scaling::blocks>;

// live_rows: on the device; without any the kernel ends at once.
template <typename Variant>
void launch_projection(const TileParams& params, const std::int32_t* live_rows,
                       const TileLaunch& launch);

}  // namespace quire::cuda::sm90::mla_prefill
