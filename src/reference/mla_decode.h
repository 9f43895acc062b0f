// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "quire/ops/mla_decode.h"
#include "reference/arithmetic.h"

namespace quire::reference {

// The formulas of quire/ops/mla_decode.h, row by row. The arguments are valid and on the CPU.
// fp8 weights: q_nope and raw are quantized in groups of 128 before they meet w_uk and w_uv.
void mla_decode(const MlaDecodeArgs& args, Arithmetic arithmetic = {});

}  // namespace quire::reference
