// SPDX-License-Identifier: Apache-2.0
// The scales of an fp8 product, as its kernels receive them.
#pragma once

#include "cuda/common/matmul/params.h"
#include "quire/ops/fused_qkv_matmul.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

// All empty where there are none.
QkvScales make_scales(const FusedQkvArgs& args);

}  // namespace quire::cuda::sm90::fused_qkv_matmul
