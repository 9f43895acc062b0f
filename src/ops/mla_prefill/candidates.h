// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/candidate.h"
#include "quire/ops/mla_prefill.h"

namespace quire::ops {

// Best first. The one list that supports, plan and the op read.
CandidateList<MlaPrefillProblem, MlaPrefillArgs> mla_prefill_candidates();

// A plan is a few sums: all that a kernel for it may ask is where they are.
CandidateList<Device, MlaPrefillPlanArgs> mla_prefill_plan_candidates();

}  // namespace quire::ops
