// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "quire/kv_operand.h"
#include "quire/ops/flash_attention.h"
#include "reference/arithmetic.h"

namespace quire::reference {

// The formulas of quire/ops/flash_attention.h, row by row. The arguments are valid and on the CPU.
void flash_attention(const FlashAttentionArgs& args, Arithmetic arithmetic = {});

// The same over any K and V; args.cache and args.layer are not read.
void flash_attention_over(const FlashAttentionArgs& args, const KvOperandRef& keys,
                          const KvOperandRef& values, Arithmetic arithmetic = {});

}  // namespace quire::reference
