// SPDX-License-Identifier: Apache-2.0
// How the oracle rounds between its steps. `exact` is the oracle proper: double everywhere, and
// only the rounding points that an op's header names. `naive` is what the tolerance rule measures a
// kernel against: the same formulas as an eager evaluation would run them, every intermediate
// tensor in the dtype of the op's input and every sum in fp32, term by term. `crossed` is naive
// without its luck: a number that fp32 arithmetic may bring to either side of a middle, where the op
// rounds it to a narrower dtype, goes to the far one.
#pragma once

#include <cstdint>
#include <span>

#include "quire/dtype.h"
#include "quire/element.h"

namespace quire::reference {

enum class Arithmetic : std::uint8_t { exact, naive, crossed };

// How far fp32 arithmetic, in whatever order, may bring a number from the exact one: a sum of terms of
// both signs, relative to the largest of its row; products and sums of squares, relative to themselves.
inline constexpr double kSumReach = 0x1p-16;
inline constexpr double kFactorReach = 0x1p-20;

// An intermediate result that an eager evaluation would keep in a tensor of `dtype`.
inline double intermediate(Arithmetic arithmetic, DType dtype, double value) {
  return arithmetic == Arithmetic::exact ? value : round_to(dtype, value);
}

// A scalar that an eager evaluation would keep in a register: fp32.
inline double in_register(Arithmetic arithmetic, double value) {
  return arithmetic == Arithmetic::exact ? value : static_cast<float>(value);
}

// Where the op itself rounds a value that may be off by `reach`. Not crossed to f32, which is no
// narrower than the arithmetic before it.
double round_within(Arithmetic arithmetic, DType dtype, double value, double reach);

// left · right.
double dot(Arithmetic arithmetic, std::span<const double> left, std::span<const double> right);

// left · right as tensor cores of Hopper add fp8 products: of the sum and of each product only what lies within 13
// bits of the larger of them counts.
double short_dot(std::span<const double> left, std::span<const double> right);

// Largest |value|; NaN does not count.
double largest_magnitude(std::span<const double> values);

}  // namespace quire::reference
