// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/matmul/params.h"
#include "quire/ops/fused_qkv_matmul.h"

namespace quire::cuda::hopper {

QkvOutputs make_outputs(const FusedQkvArgs& args);

}  // namespace quire::cuda::hopper
