// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/candidate.h"
#include "quire/ops/remap_sparse_indices.h"

namespace quire::ops {

// Best first. The one list that supports, plan and the op read.
CandidateList<RemapSparseIndicesProblem, RemapSparseIndicesArgs> remap_sparse_indices_candidates();

}  // namespace quire::ops
