// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "ops/candidate.h"
#include "quire/ops/rms_norm.h"

namespace quire::ops {

// Best first. The one list that supports, plan and the ops read.
CandidateList<RmsNormProblem, RmsNormArgs> rms_norm_candidates();

// One op in two names: what errors and plans call it.
constexpr std::string_view rms_norm_name(KvSide side) {
  return side == KvSide::key ? "rms_norm_key" : "rms_norm_value";
}

}  // namespace quire::ops
