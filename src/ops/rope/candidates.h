// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/candidate.h"
#include "quire/ops/rope.h"

namespace quire::ops {

// Best first. The one list that supports, plan and the op read.
CandidateList<RopeProblem, RopeArgs> rope_candidates();

}  // namespace quire::ops
