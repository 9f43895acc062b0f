// SPDX-License-Identifier: Apache-2.0
// Y = X · Wᵀ + bias in doubles, Q to `out`, K and V rows into the pages. Naive: fp32 sums over
// dequantized operands, Y rounded to out's dtype before the bias is added in that dtype.
#pragma once

#include "quire/ops/fused_qkv_matmul.h"
#include "reference/arithmetic.h"

namespace quire::reference {

void fused_qkv_matmul(const FusedQkvArgs& args, Arithmetic arithmetic = {});

}  // namespace quire::reference
