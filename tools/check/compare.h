// SPDX-License-Identifier: Apache-2.0
// How close is close enough. Two rules, for any kernel on any device once its outputs are on the
// host:
//   bits        every bit equal: the reference kernel on another layout, and two runs of anything
//   tolerance   max |actual - exact| ≤ 2 · max |naive - exact| + one ulp of the dtype at the
//   largest exact value,
//               NaN and infinities in the same places. Where the oracle has no naive arithmetic:
//               kUlpsWithoutNaive ulps. What crossed roundings move further than the naive error may
//               be twice as far off: rows of an output, and of the cache single numbers. Outputs of few
//               numbers may be as far off as if the naive error were the one of other numbers. Any output, and stored
//               rows, may be as far off, and an ulp, as the naive evaluation gets when its roundings go up or down by
//               chance.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quire/tensor_view.h"
#include "reference/arithmetic.h"
#include "tools/case/built.h"

namespace quire::tools {

inline constexpr double kUlpsWithoutNaive = 2.0;

struct Comparison {
  double max_error = 0.0;
  std::string fault{};  // empty: passed
};

using reference::ulp_of;

Comparison compare_bits(const std::string& name, const TensorView& actual,
                        const TensorView& expected);

// The largest distance of two numbers. Dense, of one shape.
double max_error(const TensorView& actual, const TensorView& exact);

// What evaluations with random rounding make of a tensor.
struct RandomSpread {
  double error = 0.0;           // the largest distance from an exact number
  std::vector<bool> is_open{};  // [numel] of f16: infinite in one evaluation, a number in another
  // [numel]: infinite of either sign. Something next to 0, whose sign is a matter of rounding, multiplies an infinity.
  std::vector<bool> has_open_sign{};
  // [numel]: NaN for an infinity, since that something may cancel to 0.
  std::vector<bool> has_product_of_zero{};
};
void widen(RandomSpread& spread, const TensorView& random, const TensorView& exact);

// How many numbers are at least `share` of the largest finite one.
std::int64_t count_largest(const TensorView& tensor, double share);

// What the oracle's other arithmetics gave.
struct RoughTensors {
  std::optional<TensorView> naive{};    // none: the op has none
  std::optional<TensorView> crossed{};  // none: not asked for
  double drawn_error = 0.0;             // of naive evaluations of other numbers
  RandomSpread random{};                // of evaluations with random rounding
};

// All dense, of one shape.
Comparison compare_tolerance(const std::string& name, const TensorView& actual,
                             const TensorView& exact, const RoughTensors& rough);

struct Rough {
  std::span<const double> naive{};    // empty: the op has none
  std::span<const double> crossed{};  // empty: not asked for
  std::size_t row = 1;                // numbers of a row
  double drawn_error = 0.0;
  double random_error = 0.0;
};

// The same rule on numbers. `floor` is the error that rounding the result alone may make.
Comparison compare_values(const std::string& name, std::span<const double> actual,
                          std::span<const double> exact, const Rough& rough, double floor);

// The logical rows that an op wrote, in another layout: row bytes and scales.
Comparison compare_row_bits(const WrittenRows& actual, const WrittenRows& expected);
Comparison compare_row_tolerance(const WrittenRows& actual, const WrittenRows& exact,
                                 const std::optional<WrittenRows>& naive,
                                 const std::optional<WrittenRows>& crossed = {},
                                 double random_error = 0.0);
// The largest distance of two stored numbers, scales applied.
double max_row_error(const WrittenRows& actual, const WrittenRows& exact);

}  // namespace quire::tools
