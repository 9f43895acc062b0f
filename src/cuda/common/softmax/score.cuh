// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/softmax/score.h"

namespace quire::cuda {

// `distance` = key - query.
__device__ inline float modify_score(const ScoreParams& params, float slope, float raw,
                                     std::int64_t distance) {
  float score = raw * params.scale;
  if (params.softcap > 0.0f) score = params.softcap * tanhf(score / params.softcap);
  if (params.alibi_slopes != nullptr) score += slope * static_cast<float>(distance);
  return score;
}

}  // namespace quire::cuda
