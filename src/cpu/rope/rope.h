// SPDX-License-Identifier: Apache-2.0
// rope on the CPU: f32 arithmetic, one rounding.
#pragma once

#include <string>

#include "cpu/runtime/target.h"
#include "quire/ops/rope.h"

namespace quire::cpu {

// Empty, or why the target does not take the problem.
std::string refuse(const RopeProblem& problem, Target target);

void rope(const RopeArgs& args, const Context& context, Target target);

}  // namespace quire::cpu
