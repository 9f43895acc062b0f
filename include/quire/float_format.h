// SPDX-License-Identifier: Apache-2.0
// The small float formats, converted exactly: one decoder and one encoder for all of them.
//
// Encoding rounds once, to nearest, ties to even, straight from double, so that neither float nor
// double inputs suffer a double rounding. Decoding is exact. Every code of every format is tested
// against ml_dtypes.
#pragma once

#include <bit>
#include <cstdint>

#include "quire/host_device.h"

namespace quire {

enum class Overflow : std::uint8_t { to_infinity, saturate };

// sign | exponent_bits | mantissa_bits. `finite_only`: the top exponent holds numbers, all ones is
// NaN.
struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
  bool finite_only;
  Overflow overflow;

  QUIRE_HOST_DEVICE constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  QUIRE_HOST_DEVICE constexpr int width() const { return 1 + exponent_bits + mantissa_bits; }
  QUIRE_HOST_DEVICE constexpr std::uint32_t exponent_mask() const {
    return ((1u << exponent_bits) - 1u) << mantissa_bits;
  }
  // Magnitude code of the largest finite number.
  QUIRE_HOST_DEVICE constexpr std::uint32_t max_finite() const {
    return finite_only ? (exponent_mask() | ((1u << mantissa_bits) - 2u)) : exponent_mask() - 1u;
  }
  QUIRE_HOST_DEVICE constexpr std::uint32_t quiet_nan() const {
    return finite_only ? (exponent_mask() | ((1u << mantissa_bits) - 1u))
                       : (exponent_mask() | (1u << (mantissa_bits - 1)));
  }
};

inline constexpr FloatFormat kFloat16{5, 10, false, Overflow::to_infinity};
inline constexpr FloatFormat kBFloat16{8, 7, false, Overflow::to_infinity};
inline constexpr FloatFormat kFp8E4M3{4, 3, true, Overflow::saturate};
inline constexpr FloatFormat kFp8E5M2{5, 2, false, Overflow::saturate};

// 2^exponent for exponents a double can hold.
QUIRE_HOST_DEVICE constexpr double power_of_two(int exponent) {
  return exponent >= -1022
             ? std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52)
             : std::bit_cast<double>(1ull << (exponent + 1074));
}

template <FloatFormat kFormat> QUIRE_HOST_DEVICE constexpr double decode_float(std::uint32_t code) {
  const std::uint32_t magnitude = code & ((1u << (kFormat.width() - 1)) - 1u);
  const bool negative = ((code >> (kFormat.width() - 1)) & 1u) != 0;
  const double sign = negative ? -1.0 : 1.0;
  if (magnitude > kFormat.max_finite()) {
    const bool infinite = !kFormat.finite_only && magnitude == kFormat.exponent_mask();
    const std::uint64_t payload = infinite ? 0x7ff0ull << 48 : 0x7ff8ull << 48;
    return std::bit_cast<double>(payload | (negative ? 1ull << 63 : 0ull));
  }
  const int exponent = static_cast<int>(magnitude >> kFormat.mantissa_bits);
  const double mantissa = magnitude & ((1u << kFormat.mantissa_bits) - 1u);
  const int unit = (exponent == 0 ? 1 : exponent) - kFormat.bias() - kFormat.mantissa_bits;
  const double hidden = exponent == 0 ? 0.0 : static_cast<double>(1u << kFormat.mantissa_bits);
  return sign * (hidden + mantissa) * power_of_two(unit);
}

template <FloatFormat kFormat>
QUIRE_HOST_DEVICE constexpr std::uint32_t encode_float(double value) {
  const std::uint64_t word = std::bit_cast<std::uint64_t>(value);
  const std::uint32_t sign = static_cast<std::uint32_t>(word >> 63) << (kFormat.width() - 1);
  const std::uint64_t magnitude = word & ~(1ull << 63);
  if (magnitude > 0x7ffull << 52) return sign | kFormat.quiet_nan();
  const std::uint32_t beyond =
      kFormat.overflow == Overflow::saturate ? kFormat.max_finite() : kFormat.exponent_mask();
  if (magnitude == 0x7ffull << 52) return sign | beyond;

  // The value is significand * 2^(exponent - 1075); below the normal range the kept bits shrink.
  const int exponent = static_cast<int>(magnitude >> 52);
  const std::uint64_t significand =
      (magnitude & ((1ull << 52) - 1)) | (exponent == 0 ? 0ull : 1ull << 52);
  const int unbiased = (exponent == 0 ? 1 : exponent) - 1023;
  const int lowest = 1 - kFormat.bias();
  const int target = unbiased < lowest ? lowest : unbiased;
  const int dropped = 52 - kFormat.mantissa_bits + (target - unbiased);
  if (dropped > 54) return sign;  // below half of the smallest subnormal
  std::uint64_t kept = significand >> dropped;
  const std::uint64_t rest = significand & ((1ull << dropped) - 1);
  const std::uint64_t half = 1ull << (dropped - 1);
  if (rest > half || (rest == half && (kept & 1u) != 0)) ++kept;  // ties to even

  // A carry out of the mantissa moves into the exponent field by itself: the codes are ordered.
  const std::uint64_t hidden = 1ull << kFormat.mantissa_bits;
  const std::uint64_t code = kept < hidden ? kept
                                           : (static_cast<std::uint64_t>(target + kFormat.bias())
                                              << kFormat.mantissa_bits) +
                                                 (kept - hidden);
  return sign | (code > kFormat.max_finite() ? beyond : static_cast<std::uint32_t>(code));
}

}  // namespace quire
