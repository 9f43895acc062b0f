// SPDX-License-Identifier: Apache-2.0
// Cosine and sine of a token's pairs, and what they do to one.
#pragma once

#include "cuda/common/rows/number.cuh"
#include "cuda/common/rows/rope_angles.h"
#include "cuda/common/rows/token_place.cuh"

namespace quire::cuda {

// A row past the last is the caller's mistake; it is not followed out of the table.
__device__ inline std::int64_t row_in_table(const RopeAngles& angles, std::int64_t row) {
  return row < angles.max_pos ? row : angles.max_pos - 1;
}

// The row of freqs_cis that serves all pairs of a token; where sections have rows of their own, its position.
__device__ inline std::int64_t token_angles(const RopeAngles& angles, std::int64_t token,
                                            std::int64_t position) {
  if (angles.num_sections > 0) return position;
  if (angles.position_ids != nullptr) position = angles.position_ids[token * angles.token_stride];
  return row_in_table(angles, position);
}

// The row of freqs_cis that serves a pair, from what token_angles() said of its token.
__device__ inline std::int64_t angle_row(const RopeAngles& angles, std::int64_t token,
                                         std::int64_t found, int pair) {
  if (angles.num_sections == 0) return found;
  if (angles.position_ids == nullptr) return row_in_table(angles, found);
  int section = 0;
  while (section < angles.num_sections && pair >= angles.section_ends[section]) ++section;
  if (section == angles.num_sections) section = 0;
  return row_in_table(
      angles, angles.position_ids[section * angles.section_stride + token * angles.token_stride]);
}

__device__ inline void rotate_pair(float& a, float& b, float cosine, float sine) {
  const float rotated = fmaf(a, cosine, -(b * sine));
  b = fmaf(a, sine, b * cosine);
  a = rotated;
}

// A function of its own: in its place, for every pair of a lane, it was most of what the kernels with norms take to
// compile.
__device__ __noinline__ inline float load_angle(const std::byte* freqs, DType dtype,
                                                std::int64_t index) {
  return static_cast<float>(load_number(freqs, dtype, index));
}

// How the table stands: `rows` is f32, one aligned row for all pairs of a token.
enum class AngleTable : std::uint8_t { rows, any };

// kPairs neighbouring pairs from `first` on, from what token_angles() said of their token.
template <AngleTable kTable, int kPairs>
__device__ inline void load_angles(const RopeAngles& angles, std::int64_t token, std::int64_t found,
                                   int first, float (&cosines)[kPairs], float (&sines)[kPairs]) {
  if constexpr (kTable == AngleTable::rows) {
    const auto* vectors = reinterpret_cast<const float4*>(
        reinterpret_cast<const float*>(angles.freqs) + found * angles.row_stride + 2 * first);
#pragma unroll
    for (int i = 0; i < kPairs / 2; ++i) {
      const float4 two = __ldg(vectors + i);
      cosines[2 * i] = two.x;
      sines[2 * i] = two.y * angles.sine_sign;
      cosines[2 * i + 1] = two.z;
      sines[2 * i + 1] = two.w * angles.sine_sign;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const std::int64_t row = angle_row(angles, token, found, first + i);
      const std::int64_t at = row * angles.row_stride + 2 * (first + i) * angles.column_stride;
      cosines[i] = load_angle(angles.freqs, angles.dtype, at);
      sines[i] =
          load_angle(angles.freqs, angles.dtype, at + angles.column_stride) * angles.sine_sign;
    }
  }
}

}  // namespace quire::cuda
