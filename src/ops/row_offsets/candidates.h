// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/candidate.h"
#include "quire/ops/row_offsets.h"

namespace quire::ops {

// Best first. The one list that supports, plan and the op read.
CandidateList<RowOffsetsProblem, RowOffsetsArgs> row_offsets_candidates();

}  // namespace quire::ops
