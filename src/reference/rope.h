// SPDX-License-Identifier: Apache-2.0
// Rotary embedding of q (into `out`) and of the new tokens' cached keys (in place).
#pragma once

#include "quire/ops/rope.h"
#include "reference/arithmetic.h"

namespace quire::reference {

void rope(const RopeArgs& args, Arithmetic arithmetic = {});

}  // namespace quire::reference
