// SPDX-License-Identifier: Apache-2.0
// Partial attentions over disjoint key sets, joined by their LSEs.
#pragma once

#include "quire/ops/merge_states.h"
#include "reference/arithmetic.h"

namespace quire::reference {

void merge_states(const MergeStatesArgs& args, Arithmetic arithmetic = {});

}  // namespace quire::reference
