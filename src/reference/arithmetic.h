// SPDX-License-Identifier: Apache-2.0
// How the oracle rounds between its steps. `exact` is the oracle proper: double everywhere, and
// only the rounding points that an op's header names. `naive` is what the tolerance rule measures a
// kernel against: the same formulas as an eager evaluation would run them, every intermediate
// tensor in the dtype of the op's input and every sum in fp32, term by term. `crossed` is naive
// without its luck: a number that fp32 arithmetic may bring to either side of a middle, where the op
// rounds it to a narrower dtype, goes to the far one. `random` is naive, every rounding up or down by chance
// (the CESTAC method): seeds differ by what the roundings may do to these very numbers. With an odd seed
// every intermediate is fp32, as in a kernel that does not overflow where the input's dtype would. Fp8 products are a
// permission, so of four seeds two take it and two do not.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quire/dtype.h"
#include "quire/element.h"

namespace quire::reference {

struct Arithmetic {
  enum class Kind : std::uint8_t { exact, naive, crossed, random };
  Kind kind = Kind::exact;
  std::uint8_t seed = 0;  // of random

  static const Arithmetic exact;
  static const Arithmetic naive;
  static const Arithmetic crossed;
  static constexpr Arithmetic random(std::uint8_t seed) { return {Kind::random, seed}; }
  // Whether this evaluation multiplies in fp8 where the caller, or the op, allows it.
  constexpr bool takes_fp8_products() const {
    return kind != Kind::exact && (kind != Kind::random || seed % 4 < 2);
  }
  bool operator==(const Arithmetic&) const = default;
};
inline constexpr Arithmetic Arithmetic::exact{Kind::exact};
inline constexpr Arithmetic Arithmetic::naive{Kind::naive};
inline constexpr Arithmetic Arithmetic::crossed{Kind::crossed};

// How far fp32 arithmetic, in whatever order, may bring a number from the exact one: a sum of terms of
// both signs, relative to the largest of its row; products and sums of squares, relative to themselves.
inline constexpr double kSumReach = 0x1p-16;
inline constexpr double kFactorReach = 0x1p-20;

// The distance of neighbouring numbers of a dtype around a value; 1 for the integers.
double ulp_of(DType dtype, double value);

// One of the two neighbours of `value` in a dtype of 16 or 32 bits, always the same one of a seed; the value itself where
// it is one of them.
double round_randomly(DType dtype, double value, std::uint8_t seed);

// A scalar that an eager evaluation would keep in a register: fp32.
inline double in_register(Arithmetic arithmetic, double value) {
  if (arithmetic.kind == Arithmetic::Kind::exact) return value;
  return arithmetic.kind == Arithmetic::Kind::random
             ? round_randomly(DType::f32, value, arithmetic.seed)
             : static_cast<float>(value);
}

// body(round), where round(value) is in_register(arithmetic, value): loops over terms choose once, not for each of them.
template <typename Body> decltype(auto) with_register(Arithmetic arithmetic, const Body& body) {
  if (arithmetic.kind == Arithmetic::Kind::exact) return body([](double value) { return value; });
  if (arithmetic.kind == Arithmetic::Kind::random) {
    return body([arithmetic](double value) { return in_register(arithmetic, value); });
  }
  return body([](double value) -> double { return static_cast<float>(value); });
}

// An intermediate result that an eager evaluation would keep in a tensor of `dtype`.
inline double intermediate(Arithmetic arithmetic, DType dtype, double value) {
  if (arithmetic.kind == Arithmetic::Kind::exact) return value;
  if (arithmetic.kind != Arithmetic::Kind::random) return round_to(dtype, value);
  const bool is_narrowed = arithmetic.seed % 2 == 0;
  return round_randomly(is_narrowed ? dtype : DType::f32, value, arithmetic.seed);
}

// Where the op itself rounds a value that may be off by `reach`. Not crossed to f32, which is no
// narrower than the arithmetic before it.
double round_within(Arithmetic arithmetic, DType dtype, double value, double reach);

// left · right.
double dot(Arithmetic arithmetic, std::span<const double> left, std::span<const double> right);
// left · each of `rights`, with the bits of `dot`: several sums at a time, since each waits for its own last term.
std::vector<double> dots(Arithmetic arithmetic, std::span<const double> left,
                         std::span<const std::span<const double>> rights);

// left · right as tensor cores of Hopper add fp8 products: of the sum and of each product only what lies within 13
// bits of the larger of them counts.
double short_dot(std::span<const double> left, std::span<const double> right);

// Largest |value|; NaN does not count.
double largest_magnitude(std::span<const double> values);

}  // namespace quire::reference
