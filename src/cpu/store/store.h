// SPDX-License-Identifier: Apache-2.0
// store and store_scales on the CPU: every row format, bit for bit what the reference writes.
#pragma once

#include <string>

#include "cpu/runtime/target.h"
#include "quire/ops/store.h"

namespace quire::cpu {

void store(const StoreArgs& args, const Context& context, Target target);
void store_scales(const StoreScalesArgs& args, const Context& context, Target target);

}  // namespace quire::cpu
