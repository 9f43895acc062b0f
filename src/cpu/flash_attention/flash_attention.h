// SPDX-License-Identifier: Apache-2.0
// flash_attention on the CPU: every problem that is valid and on the host.
#pragma once

#include <string>

#include "cpu/runtime/target.h"
#include "quire/ops/flash_attention.h"

namespace quire::cpu {

void flash_attention(const FlashAttentionArgs& args, const Context& context, Target target);

}  // namespace quire::cpu
