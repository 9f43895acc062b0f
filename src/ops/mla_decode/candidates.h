// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/candidate.h"
#include "quire/ops/mla_decode.h"

namespace quire::ops {

// Best first. The one list that supports, plan and the op read.
CandidateList<MlaDecodeProblem, MlaDecodeArgs> mla_decode_candidates();

}  // namespace quire::ops
