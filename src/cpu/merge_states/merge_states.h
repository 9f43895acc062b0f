// SPDX-License-Identifier: Apache-2.0
// merge_states on the CPU: weights and LSE in double, the sum of the states in f32.
#pragma once

#include <string>

#include "cpu/runtime/target.h"
#include "quire/ops/merge_states.h"

namespace quire::cpu {

void merge_states(const MergeStatesArgs& args, const Context& context, Target target);

}  // namespace quire::cpu
