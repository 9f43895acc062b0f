// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/candidate.h"
#include "quire/ops/mla_indexer.h"

namespace quire::ops {

// Best first. The one list that supports, plan and the op read.
CandidateList<MlaIndexerProblem, MlaIndexerArgs> mla_indexer_candidates();

}  // namespace quire::ops
