// SPDX-License-Identifier: Apache-2.0
// One interleaved rope pair, in double: the bits of the oracle wherever one rounding decides.
#pragma once

#include "cuda/common/mla/finish_rows.h"
#include "cuda/common/rows/number.cuh"

namespace quire::cuda {

struct RotatedPair {
  double a;
  double b;
};

// A position past the table is the caller's mistake; it is not followed out of it.
__device__ inline RotatedPair rotate_pair(const LatentAngles& angles, std::int64_t position,
                                          int pair, double a, double b) {
  if (angles.freqs == nullptr) return {a, b};
  const std::int64_t row = position < angles.max_pos ? position : angles.max_pos - 1;
  const std::int64_t at = row * angles.row_stride + 2 * pair;
  const double cosine = load_number(angles.freqs, angles.dtype, at);
  const double sine = load_number(angles.freqs, angles.dtype, at + 1);
  return {a * cosine - b * sine, a * sine + b * cosine};
}

}  // namespace quire::cuda
