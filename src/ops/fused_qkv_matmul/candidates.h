// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/candidate.h"
#include "quire/ops/fused_qkv_matmul.h"

namespace quire::ops {

// Best first. The one list that supports, plan and the op read.
CandidateList<FusedQkvProblem, FusedQkvArgs> fused_qkv_matmul_candidates();

}  // namespace quire::ops
