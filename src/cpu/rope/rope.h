// SPDX-License-Identifier: Apache-2.0
// rope on the CPU: f32 arithmetic, one rounding.
#pragma once

#include <string>

#include "cpu/runtime/target.h"
#include "quire/ops/rope.h"

namespace quire::cpu {

void rope(const RopeArgs& args, const Context& context, Target target);

}  // namespace quire::cpu
