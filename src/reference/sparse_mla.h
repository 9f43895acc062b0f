// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "quire/ops/sparse_mla.h"
#include "reference/arithmetic.h"

namespace quire::reference {

// The formulas of quire/ops/sparse_mla.h, row by row. The arguments are valid and on the CPU.
// The keys of an extra stream's sequence are counted like the main one's: its own cache_length +
// the new tokens.
void sparse_mla(const SparseMlaArgs& args, Arithmetic arithmetic = {});

}  // namespace quire::reference
