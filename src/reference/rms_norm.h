// SPDX-License-Identifier: Apache-2.0
// RMSNorm of the new tokens' cached keys or values, in place.
#pragma once

#include "quire/ops/rms_norm.h"
#include "reference/arithmetic.h"

namespace quire::reference {

void rms_norm(const RmsNormArgs& args, Arithmetic arithmetic = {});

}  // namespace quire::reference
