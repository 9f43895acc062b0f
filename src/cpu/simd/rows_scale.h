// SPDX-License-Identifier: Apache-2.0
// The scale of a group of fp8 codes.
#pragma once

#include <cstdint>

#include "quire/dtype.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// The smallest power of two that is not below a positive normal value; infinity stays.
inline double round_up_to_power_of_two(double value) {
  std::uint64_t word;
  __builtin_memcpy(&word, &value, sizeof(word));
  constexpr std::uint64_t kMantissa = (std::uint64_t{1} << 52) - 1;
  if ((word & kMantissa) != 0) word = (word & ~kMantissa) + kMantissa + 1;
  __builtin_memcpy(&value, &word, sizeof(value));
  return value;
}

inline constexpr double kLowestPowerScale = 1e-10;

// Powers of two are never 0.
inline double lowest_scale(DType dtype) {
  return dtype == DType::e8m0 ? kLowestPowerScale : 0.0;
}

// Chosen in double and rounded once to f32.
inline float fp8_scale(double amax, double largest_code, bool power_of_two) {
  const double exact = amax / largest_code;
  if (!power_of_two) return static_cast<float>(exact);
  return static_cast<float>(
      round_up_to_power_of_two(exact < kLowestPowerScale ? kLowestPowerScale : exact));
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
