// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/argument.h"
#include "ops/candidate.h"
#include "quire/ops/copy_pages.h"

namespace quire::ops {

// Best first. The one list that supports, plan and the op read.
CandidateList<CopyPagesProblem, CopyPagesArgs> copy_pages_candidates();

// Page ids that are on the host: in range, no target twice, no target a source.
void check_page_pairs(const Arguments& check, const TensorView& pairs, std::int64_t num_pages);

}  // namespace quire::ops
