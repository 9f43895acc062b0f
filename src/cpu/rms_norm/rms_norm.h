// SPDX-License-Identifier: Apache-2.0
// rms_norm_key and rms_norm_value on the CPU. The mean is taken in double; the normalized value is
// f32 and rounded once, or, with multiply_before_cast = false, rounded from double to gamma's type
// first.
#pragma once

#include <string>

#include "cpu/runtime/target.h"
#include "quire/ops/rms_norm.h"

namespace quire::cpu {

void rms_norm(const RmsNormArgs& args, const Context& context, Target target);

}  // namespace quire::cpu
