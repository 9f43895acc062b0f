// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/candidate.h"
#include "quire/ops/merge_states.h"

namespace quire::ops {

// Best first. The one list that supports, plan and the op read.
CandidateList<MergeStatesProblem, MergeStatesArgs> merge_states_candidates();

}  // namespace quire::ops
