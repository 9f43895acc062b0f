// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/candidate.h"
#include "quire/ops/store.h"

namespace quire::ops {

// Best first. The lists that supports, plan and the two ops read.
CandidateList<StoreProblem, StoreArgs> store_candidates();
CandidateList<StoreProblem, StoreScalesArgs> store_scales_candidates();

}  // namespace quire::ops
