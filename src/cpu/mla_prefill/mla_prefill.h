// SPDX-License-Identifier: Apache-2.0
// mla_prefill on the CPU: every problem that is valid and on the host.
#pragma once

#include <string>

#include "cpu/runtime/target.h"
#include "quire/ops/mla_prefill.h"

namespace quire::cpu {

void mla_prefill(const MlaPrefillArgs& args, const Context& context, Target target);

}  // namespace quire::cpu
