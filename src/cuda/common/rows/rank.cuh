// SPDX-License-Identifier: Apache-2.0
// Scores as unsigned numbers of the same order.
#pragma once

#include <cstdint>

namespace quire::cuda {

inline constexpr std::uint32_t kAbsentRank = 0;
inline constexpr std::uint32_t kNanRank = 1;  // after everything, -inf included

// Of a score that is no NaN. -0 and +0 are one score.
__device__ inline std::uint32_t rank_of_number(float score) {
  const std::uint32_t code = __float_as_uint(score + 0.0f);
  const std::uint32_t sign = static_cast<std::uint32_t>(static_cast<std::int32_t>(code) >> 31);
  return code ^ (sign | 0x80000000u);
}

__device__ inline std::uint32_t rank_of(float score) {
  if (isnan(score)) return kNanRank;
  return rank_of_number(score);
}

// The score of a rank that is no NaN's.
__device__ inline float score_of(std::uint32_t rank) {
  return __uint_as_float((rank >> 31) != 0 ? rank & 0x7fffffffu : ~rank);
}

// A key of a row: a greater code is a better score or, of equal ones, a lower position. No two keys
// of a row have the same.
__device__ constexpr std::uint64_t code_of(std::uint32_t rank, std::uint32_t position) {
  return std::uint64_t{rank} << 32 | static_cast<std::uint32_t>(~position);
}
__device__ inline std::uint32_t position_of(std::uint64_t code) {
  return ~static_cast<std::uint32_t>(code);
}

// The least that a key may have.
inline constexpr std::uint64_t kAnyCode = std::uint64_t{kNanRank} << 32;

}  // namespace quire::cuda
