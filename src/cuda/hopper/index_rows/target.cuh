// SPDX-License-Identifier: Apache-2.0
// Where the codes and the scale of a row go: the two ops differ in nothing else.
#pragma once

#include "cuda/hopper/index_rows/params.h"
#include "cuda/rows/any_eight.cuh"
#include "cuda/rows/token_place.cuh"
#include "cuda/tile/load_float.cuh"

namespace quire::cuda::hopper {

// A token's share of a target's addresses, found once for all its rows.
struct TokenTarget {
  std::int64_t position = -1;  // -1: nothing is written
  std::byte* codes = nullptr;  // of head 0
  std::byte* scale = nullptr;
  std::int64_t gate = 0;  // of head 0, an index of the weights
};

__device__ inline TokenTarget locate(const KeyTarget& target, const TokenPlace& place,
                                     std::int64_t) {
  std::byte* row = first_row(target.view, place);
  if (row == nullptr) return {};
  return {.position = place.position,
          .codes = row + target.codes_offset,
          .scale = target.scale_offset >= 0 ? row + target.scale_offset
                                            : first_scale(target.view, place)};
}

__device__ inline TokenTarget locate(const QueryTarget& target, const TokenPlace& place,
                                     std::int64_t token) {
  if (!place.exists()) return {};
  return {.position = place.position,
          .codes = target.out + token * target.out_token_bytes,
          .scale = reinterpret_cast<std::byte*>(target.q_scale + token * target.scale_token_stride),
          .gate = token * target.weights_token_stride};
}

__device__ inline std::byte* codes_of(const KeyTarget&, const TokenTarget& token, int) {
  return token.codes;
}
__device__ inline std::byte* codes_of(const QueryTarget& target, const TokenTarget& token,
                                      int head) {
  return token.codes + head * target.out_head_bytes;
}

// What the row's scale is multiplied with before it is stored.
__device__ inline float gate_of(const KeyTarget&, const TokenTarget&, int) {
  return 1.0f;
}
__device__ inline float gate_of(const QueryTarget& target, const TokenTarget& token, int head) {
  if (target.weights == nullptr) return target.factor;
  return target.factor * load_float(target.weights, target.weights_dtype,
                                    token.gate + head * target.weights_head_stride);
}

__device__ inline void store_scale(const KeyTarget&, const TokenTarget& token, int, float scale) {
  if (token.scale == nullptr) return;
  __builtin_assume(__isGlobal(token.scale));
  *reinterpret_cast<float*>(token.scale) = scale;
}
__device__ inline void store_scale(const QueryTarget& target, const TokenTarget& token, int head,
                                   float scale) {
  __builtin_assume(__isGlobal(token.scale));
  reinterpret_cast<float*>(token.scale)[head * target.scale_head_stride] = scale;
}

// The smallest power of two s with 448 · s >= amax, at least 2^-33: 448 is 1.75 · 2^8.
__device__ inline float power_of_two_scale(float amax) {
  if (!(amax <= 0x1.fffffep+127f)) return amax;  // infinity
  constexpr int kSmallest = 127 - 33;
  const int bits = __float_as_int(amax);
  const int exponent = (bits >> 23) - 8 + ((bits & 0x7fffff) > 0x600000 ? 1 : 0);
  return __int_as_float(max(exponent, kSmallest) << 23);
}

__device__ inline float row_scale(ScaleRounding rounding, float amax) {
  return rounding == ScaleRounding::exact ? __fdiv_rn(amax, 448.0f) : power_of_two_scale(amax);
}

}  // namespace quire::cuda::hopper
