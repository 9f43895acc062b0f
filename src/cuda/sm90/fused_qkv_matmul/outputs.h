// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/matmul/params.h"
#include "quire/ops/fused_qkv_matmul.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

QkvOutputs make_outputs(const FusedQkvArgs& args);

}  // namespace quire::cuda::sm90::fused_qkv_matmul
