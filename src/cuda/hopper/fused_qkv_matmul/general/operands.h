// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/hopper/fused_qkv_matmul/general/params.h"
#include "quire/ops/fused_qkv_matmul.h"

namespace quire::cuda::hopper {

// K and V go to the pages.
GeneralParams make_general_params(const FusedQkvArgs& args);

// Rows of one number type without scales, which a kernel stores value by value.
bool stores_rows_directly(const RowFormat& format);

}  // namespace quire::cuda::hopper
