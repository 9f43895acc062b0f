// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "quire/ops/flash_attention.h"
#include "reference/arithmetic.h"

namespace quire::reference {

// The formulas of quire/ops/flash_attention.h, row by row. The arguments are valid and on the CPU.
void flash_attention(const FlashAttentionArgs& args, Arithmetic arithmetic = {});

}  // namespace quire::reference
