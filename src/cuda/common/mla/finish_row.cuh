// SPDX-License-Identifier: Apache-2.0
// Eight columns of a new latent row: normalised, or rotated. Statistics in double: the normalised
// number is rounded twice on its way to the cache.
#pragma once

#include "cuda/common/mla/finish_rows.h"
#include "cuda/common/mla/head_product.h"
#include "cuda/common/rows/number.cuh"
#include "cuda/common/rows/token_place.cuh"
#include "cuda/common/rows/vec8.cuh"
#include "cuda/common/thread/warp_reduce.cuh"

namespace quire::cuda {

// One interleaved rope pair, in double: the bits of the oracle wherever one rounding decides.

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

// On the way to 16 bits: cut off, with a last bit that remembers it, so that the rounding to come is
// the only one (rows/quotient.cuh).
__device__ inline float round_to_odd(double value) {
  const float lower = __double2float_rz(value);
  return static_cast<double>(lower) == value ? lower : __int_as_float(__float_as_int(lower) | 1);
}

__device__ inline float round_to(DType dtype, float value) {
  if (dtype == DType::bf16) return Vec8<DType::bf16>::round(value);
  return dtype == DType::f16 ? Vec8<DType::f16>::round(value) : value;
}

__device__ inline float round_to(DType dtype, double value) {
  if (dtype == DType::f32) return static_cast<float>(value);
  return round_to(dtype, round_to_odd(value));
}

__device__ inline void add_squares(const float (&values)[kVec8], double& squares) {
#pragma unroll
  for (const float value : values) squares += static_cast<double>(value) * value;
}

// What a row's latents are multiplied by, from the squares of each lane's columns.
__device__ inline double normal_factor(const LatentRowFinish& how, double squares) {
  return 1.0 / sqrt(warp_sum(squares) / how.latent + how.epsilon);
}

// gamma: of these columns.
__device__ inline void normalise(const LatentRowFinish& how, const float (&gamma)[kVec8],
                                 double factor, float (&values)[kVec8]) {
#pragma unroll
  for (int i = 0; i < kVec8; ++i) {
    const float normal = round_to(how.gamma_dtype, values[i] * factor);
    values[i] = round_to(how.gamma_dtype, normal * gamma[i]);
  }
}

// Eight numbers that need not be aligned, of a dtype that is looked at once.
__device__ inline void load_each(const std::byte* base, DType dtype, std::int64_t index,
                                 float (&values)[kVec8]) {
  if (dtype == DType::f32) {
#pragma unroll
    for (int i = 0; i < kVec8; ++i) values[i] = load_one(base, DType::f32, index + i);
  } else if (dtype == DType::bf16) {
#pragma unroll
    for (int i = 0; i < kVec8; ++i) values[i] = load_one(base, DType::bf16, index + i);
  } else {
#pragma unroll
    for (int i = 0; i < kVec8; ++i) values[i] = load_one(base, DType::f16, index + i);
  }
}

// Cosines and sines, which alternate, of a rope column and the seven behind it. A position past the table is
// the caller's mistake; it is not followed out of it.
__device__ inline void load_angles(const LatentAngles& angles, std::int64_t position, int column,
                                   float (&values)[kVec8]) {
  const std::int64_t row = position < angles.max_pos ? position : angles.max_pos - 1;
  load_each(angles.freqs, angles.dtype, row * angles.row_stride + column, values);
}

// To be rounded to 16 bits.
__device__ inline void rotate(const float (&angles)[kVec8], float (&values)[kVec8]) {
#pragma unroll
  for (int i = 0; i < kVec8; i += 2) {
    const double cosine = angles[i];
    const double sine = angles[i + 1];
    const double a = values[i];
    const double b = values[i + 1];
    values[i] = round_to_odd(a * cosine - b * sine);
    values[i + 1] = round_to_odd(a * sine + b * cosine);
  }
}

// One pair of the rope columns of a query. Not through the read-only path: y may be q.
__device__ inline void rotate_query(const RotateQueriesParams& params, const TokenPlace& place,
                                    std::int64_t token, std::int64_t head, int pair) {
  const std::byte* q = params.q.data + token * params.q.token_bytes + head * params.q.head_bytes;
  std::byte* y = params.y + token * params.y_token_bytes + head * params.y_head_bytes;
  const int from = params.q.width - params.rope + 2 * pair;
  const int to = params.y_width - params.rope + 2 * pair;
  const RotatedPair rotated =
      rotate_pair(params.angles, place.position, pair, load_number(q, params.q.dtype, from),
                  load_number(q, params.q.dtype, from + 1));
  store_number(y, params.y_dtype, to, rotated.a);
  store_number(y, params.y_dtype, to + 1, rotated.b);
}

}  // namespace quire::cuda
