// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "quire/ops/mla_prefill.h"
#include "reference/arithmetic.h"

namespace quire::reference {

// The steps of quire/ops/mla_prefill.h, chunk by chunk. The arguments are valid and on the CPU;
// chunks that do not cover the tokens throw Error all the same, before anything is written.
void mla_prefill(const MlaPrefillArgs& args, Arithmetic arithmetic = {});

}  // namespace quire::reference
