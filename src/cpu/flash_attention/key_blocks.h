// SPDX-License-Identifier: Apache-2.0
// flash_attention with key_blocks on the CPU: every token is a sequence of its own, whose keys are those in its
// lists.
#pragma once

#include <optional>

#include "cpu/attention/item.h"
#include "cpu/runtime/target.h"
#include "quire/kv_operand.h"
#include "quire/ops/flash_attention.h"

namespace quire::cpu {

void attend_key_blocks(const FlashAttentionArgs& args, const KvOperandRef& keys,
                       const std::optional<KvOperandRef>& values, const ScoreRule& score,
                       const Context& context, Target target);

}  // namespace quire::cpu
