// SPDX-License-Identifier: Apache-2.0
// select_blocks on the CPU: every problem that is valid and on the host.
#pragma once

#include "cpu/runtime/target.h"
#include "quire/ops/select_blocks.h"

namespace quire::cpu {

void select_blocks(const SelectBlocksArgs& args, const Context& context, Target target);

}  // namespace quire::cpu
