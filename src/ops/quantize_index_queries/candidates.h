// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/candidate.h"
#include "quire/ops/quantize_index_queries.h"

namespace quire::ops {

// Best first. The one list that supports, plan and the op read.
CandidateList<QuantizeIndexQueriesProblem, QuantizeIndexQueriesArgs>
quantize_index_queries_candidates();

}  // namespace quire::ops
