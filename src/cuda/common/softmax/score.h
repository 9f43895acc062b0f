// SPDX-License-Identifier: Apache-2.0
// How a dot product becomes a score: softcap(scale · raw) + slope(head) · (key - query).
#pragma once

#include <cmath>
#include <string>

namespace quire::cuda {

struct ScoreParams {
  float scale = 1.0f;
  float softcap = 0.0f;                 // 0: none
  const float* alibi_slopes = nullptr;  // [heads], null: none
};

// Tile kernels compute exp2(raw · scale - max · scale) with one rounding of the product that is taken off, and its error
// grows with the score. With ordinary data only an extraordinary scale leads there.
inline constexpr double kLargestTileScale = 65536.0;

// Empty, or why tile kernels do not take the scale.
inline std::string refuse_scale(double scale) {
  return std::abs(scale) <= kLargestTileScale ? "" : "scale is beyond 65536";
}

}  // namespace quire::cuda
