// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/any/fused_qkv_matmul/params.h"
#include "quire/ops/fused_qkv_matmul.h"

namespace quire::cuda::any::fused_qkv_matmul {

// K and V go to the pages.
GeneralParams make_general_params(const FusedQkvArgs& args);

}  // namespace quire::cuda::any::fused_qkv_matmul
