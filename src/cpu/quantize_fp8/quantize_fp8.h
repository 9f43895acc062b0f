// SPDX-License-Identifier: Apache-2.0
// quantize_fp8 on the CPU, bit for bit what the reference gives.
#pragma once

#include <string>

#include "cpu/runtime/target.h"
#include "quire/ops/quantize_fp8.h"

namespace quire::cpu {

void quantize_fp8(const QuantizeFp8Args& args, const Context& context, Target target);

}  // namespace quire::cpu
