// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/candidate.h"
#include "quire/ops/flash_attention.h"

namespace quire::ops {

// Best first. The one list that supports, plan and the op read.
CandidateList<FlashAttentionProblem, FlashAttentionArgs> flash_attention_candidates();

}  // namespace quire::ops
