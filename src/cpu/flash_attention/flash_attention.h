// SPDX-License-Identifier: Apache-2.0
// flash_attention on the CPU: every problem that is valid and on the host, but for ALiBi over key_blocks.
#pragma once

#include <optional>
#include <string>

#include "cpu/runtime/target.h"
#include "quire/kv_operand.h"
#include "quire/ops/flash_attention.h"

namespace quire::cpu {

void flash_attention(const FlashAttentionArgs& args, const Context& context, Target target);

// The same over any K and V; without values, V is the first columns of the K row. args.cache and
// args.layer are not read.
void flash_attention_over(const FlashAttentionArgs& args, const KvOperandRef& keys,
                          const std::optional<KvOperandRef>& values, const Context& context,
                          Target target);

// Empty, or why not.
std::string refuse_flash_attention(const FlashAttentionProblem& problem, Target target);

}  // namespace quire::cpu
