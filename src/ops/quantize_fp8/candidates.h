// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/candidate.h"
#include "quire/ops/quantize_fp8.h"

namespace quire::ops {

// Best first. The one list that supports, plan and the op read.
CandidateList<QuantizeFp8Problem, QuantizeFp8Args> quantize_fp8_candidates();

}  // namespace quire::ops
