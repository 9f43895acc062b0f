// SPDX-License-Identifier: Apache-2.0
// The projection of reference/projection.h, rounded to `out`.
#pragma once

#include "quire/ops/linear.h"
#include "reference/arithmetic.h"

namespace quire::reference {

void linear(const LinearArgs& args, Arithmetic arithmetic = {});

}  // namespace quire::reference
