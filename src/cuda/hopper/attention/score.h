// SPDX-License-Identifier: Apache-2.0
// How a dot product becomes a score: softcap(scale · raw) + slope(head) · (key - query).
#pragma once

namespace quire::cuda::hopper {

struct ScoreParams {
  float scale = 1.0f;
  float softcap = 0.0f;                 // 0: none
  const float* alibi_slopes = nullptr;  // [heads], null: none
};

}  // namespace quire::cuda::hopper
