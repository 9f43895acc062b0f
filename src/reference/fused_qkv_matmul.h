// SPDX-License-Identifier: Apache-2.0
// Q of the projection (reference/projection.h) to `out`, K and V rows into the pages.
#pragma once

#include "quire/ops/fused_qkv_matmul.h"
#include "reference/arithmetic.h"

namespace quire::reference {

void fused_qkv_matmul(const FusedQkvArgs& args, Arithmetic arithmetic = {});

}  // namespace quire::reference
