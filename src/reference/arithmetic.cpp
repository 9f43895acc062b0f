// SPDX-License-Identifier: Apache-2.0
#include "reference/arithmetic.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

namespace quire::reference {
namespace {

int mantissa_bits(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 23;
    case DType::f16:
      return 10;
    case DType::bf16:
      return 7;
    case DType::fp8_e4m3:
      return 3;
    default:
      return 2;  // fp8_e5m2
  }
}

int lowest_exponent(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::bf16:
      return -126;
    case DType::fp8_e4m3:
      return -6;
    default:
      return -14;  // f16, fp8_e5m2
  }
}

// Two rounds of a multiply and a shift: every bit of the value moves the highest one.
bool is_rounded_up(double value, std::uint8_t seed) {
  std::uint64_t mixed = std::bit_cast<std::uint64_t>(value) + 0x9E3779B97F4A7C15u * (seed + 1u);
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
  return (mixed >> 63) != 0;
}

// Every term of every sum goes through here, so the neighbours are found in the bits: that nearer to zero is the
// nearest one or the one before it.
double round_f32_randomly(double value, std::uint8_t seed) {
  const auto nearest = static_cast<float>(value);
  if (nearest == value || std::abs(value) >= 0x1p128) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::abs(double{nearest}) > std::abs(value)) --bits;
  const bool is_away_from_zero = is_rounded_up(value, seed) == (value > 0.0);
  return std::bit_cast<float>(bits + (is_away_from_zero ? 1u : 0u));
}

// sums[j] += left · rights[j], term by term.
template <std::size_t kCount, typename Round>
void add_products(std::span<const double> left, const std::span<const double>* rights, double* sums,
                  const Round& round) {
  const double* rows[kCount];
  double own[kCount];
  for (std::size_t j = 0; j < kCount; ++j) rows[j] = rights[j].data();
  for (std::size_t j = 0; j < kCount; ++j) own[j] = sums[j];
  for (std::size_t i = 0; i < left.size(); ++i) {
    for (std::size_t j = 0; j < kCount; ++j) own[j] = round(own[j] + left[i] * rows[j][i]);
  }
  for (std::size_t j = 0; j < kCount; ++j) sums[j] = own[j];
}

constexpr int kFractionBits = 52;  // of a double

// Zero and subnormal numbers have 0.
int exponent_field(double value) {
  return static_cast<int>(std::bit_cast<std::uint64_t>(value) >> kFractionBits & 0x7FF);
}

// What a register with 13 bits below 2^largest keeps of a number no greater than that: the rest is cut off.
double keep_short(double value, int largest) {
  constexpr int kBits = 13;
  const int cut = kFractionBits - kBits + largest - exponent_field(value);
  if (cut > kFractionBits) return 0.0;
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) & ~std::uint64_t{0} << cut);
}

}  // namespace

double ulp_of(DType dtype, double value) {
  if (!is_float(dtype)) return 1.0;
  if (!std::isfinite(value)) return 0.0;
  const int exponent = value == 0.0 ? lowest_exponent(dtype) : std::ilogb(value);
  return std::ldexp(1.0, std::max(exponent, lowest_exponent(dtype)) - mantissa_bits(dtype));
}

double round_randomly(DType dtype, double value, std::uint8_t seed) {
  if (!std::isfinite(value)) return round_to(dtype, value);
  if (dtype == DType::f32) return round_f32_randomly(value, seed);
  if (round_to(dtype, value) == value) return value;
  const double unit = ulp_of(dtype, value);
  const double steps = value / unit;
  return round_to(dtype,
                  unit * (is_rounded_up(value, seed) ? std::ceil(steps) : std::floor(steps)));
}

double round_within(Arithmetic arithmetic, DType dtype, double value, double reach) {
  const double nearest = round_to(dtype, value);
  if (arithmetic.kind != Arithmetic::Kind::crossed || dtype == DType::f32) return nearest;
  const double below = round_to(dtype, value - reach);
  const double above = round_to(dtype, value + reach);
  return std::abs(below - nearest) > std::abs(above - nearest) ? below : above;
}

double dot(Arithmetic arithmetic, std::span<const double> left, std::span<const double> right) {
  const std::span<const double> rights[] = {right};
  return dots(arithmetic, left, rights).front();
}

std::vector<double> dots(Arithmetic arithmetic, std::span<const double> left,
                         std::span<const std::span<const double>> rights) {
  constexpr std::size_t kAtOnce = 8;
  std::vector<double> sums(rights.size());
  with_register(arithmetic, [&](const auto& round) {
    std::size_t first = 0;
    for (; first + kAtOnce <= rights.size(); first += kAtOnce) {
      add_products<kAtOnce>(left, &rights[first], &sums[first], round);
    }
    for (; first < rights.size(); ++first) {
      add_products<1>(left, &rights[first], &sums[first], round);
    }
  });
  return sums;
}

double short_dot(std::span<const double> left, std::span<const double> right) {
  double sum = 0.0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const double product = left[i] * right[i];
    const double both = sum + product;
    if (!std::isfinite(both)) {
      sum = both;
      continue;
    }
    const int largest = std::max(exponent_field(sum), exponent_field(product));
    sum = keep_short(sum, largest) + keep_short(product, largest);
  }
  return sum;
}

double largest_magnitude(std::span<const double> values) {
  double largest = 0.0;
  for (const double value : values) largest = std::fmax(largest, std::abs(value));
  return largest;
}

}  // namespace quire::reference
