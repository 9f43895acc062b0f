// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/candidate.h"
#include "quire/ops/sparse_mla.h"

namespace quire::ops {

// Best first. The one list that supports, plan and the op read.
CandidateList<SparseMlaProblem, SparseMlaArgs> sparse_mla_candidates();

}  // namespace quire::ops
