// SPDX-License-Identifier: Apache-2.0
#include "tools/check/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "quire/element.h"

namespace quire::tools {
namespace {

std::vector<double> values_of(const TensorView& tensor) {
  std::vector<double> values(static_cast<std::size_t>(tensor.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = load_element(tensor.data, tensor.dtype, static_cast<std::int64_t>(i));
  }
  return values;
}

// [3, 0, 17] of a row-major tensor.
std::string index_text(const TensorView& tensor, std::int64_t flat) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(tensor.rank));
  for (int dim = tensor.rank - 1; dim >= 0; --dim) {
    index[static_cast<std::size_t>(dim)] = flat % tensor.shape[dim];
    flat /= tensor.shape[dim];
  }
  return fmt::format("[{}]", fmt::join(index, ", "));
}

// NaN with NaN, +inf with +inf, -inf with -inf, numbers with numbers.
bool is_same_kind(double left, double right) {
  if (std::isnan(left) || std::isnan(right)) return std::isnan(left) && std::isnan(right);
  if (std::isinf(left) || std::isinf(right)) return left == right;
  return true;
}

double max_distance(std::span<const double> left, std::span<const double> right) {
  double largest = 0.0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (std::isfinite(left[i]) && std::isfinite(right[i])) {
      largest = std::max(largest, std::abs(left[i] - right[i]));
    }
  }
  return largest;
}

double largest_finite(std::span<const double> values) {
  double largest = 0.0;
  for (const double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

// Whether an f16 number overflows in one evaluation and not, or to the other side, in another.
bool is_open_overflow(double left, double right) {
  return !std::isnan(left) && !std::isnan(right) && !is_same_kind(left, right);
}

// An infinity is the first number beyond f16.
void close_infinity(double& value) {
  constexpr double kBeyond = 65536.0;
  if (std::isinf(value)) value = std::copysign(kBeyond, value);
}

// Where the naive evaluation has infinities that the exact one does not have, or of the other sign, a sum of f16 overflows
// or not by its rounding: all infinities are closed then. Where only random rounding has them, those it is about.
void close_infinities(std::span<const double> naive, const std::vector<bool>& is_open,
                      std::initializer_list<std::span<double>> all) {
  const std::span<double> exact = *all.begin();
  bool are_all_open = false;
  for (std::size_t i = 0; i < naive.size() && !are_all_open; ++i) {
    are_all_open = is_open_overflow(naive[i], exact[i]);
  }
  if (!are_all_open && is_open.empty()) return;
  for (const std::span<double> values : all) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (are_all_open || is_open[i]) close_infinity(values[i]);
    }
  }
}

}  // namespace

double max_error(const TensorView& actual, const TensorView& exact) {
  return max_distance(values_of(actual), values_of(exact));
}

void widen(RandomSpread& spread, const TensorView& random, const TensorView& exact) {
  const std::vector<double> values = values_of(random);
  const std::vector<double> wanted = values_of(exact);
  spread.error = std::max(spread.error, max_distance(values, wanted));
  spread.has_open_sign.resize(values.size(), false);
  spread.has_product_of_zero.resize(values.size(), false);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isinf(wanted[i])) continue;
    if (values[i] == -wanted[i]) spread.has_open_sign[i] = true;
    if (std::isnan(values[i])) spread.has_product_of_zero[i] = true;
  }
  if (exact.dtype != DType::f16) return;
  spread.is_open.resize(values.size(), false);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (is_open_overflow(values[i], wanted[i])) spread.is_open[i] = true;
  }
}

std::int64_t count_largest(const TensorView& tensor, double share) {
  const std::vector<double> values = values_of(tensor);
  const double largest = largest_finite(values);
  return std::ranges::count_if(values, [&](double value) {
    return std::isfinite(value) && std::abs(value) >= share * largest;
  });
}

Comparison compare_bits(const std::string& name, const TensorView& actual,
                        const TensorView& expected) {
  const std::int64_t bytes = bytes_for(actual.dtype, actual.numel());
  if (std::memcmp(actual.data, expected.data, static_cast<std::size_t>(bytes)) == 0) return {};
  const std::vector<double> got = values_of(actual);
  const std::vector<double> wanted = values_of(expected);
  Comparison result{.max_error = max_distance(got, wanted)};
  std::int64_t count = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool same = got[i] == wanted[i] ? std::signbit(got[i]) == std::signbit(wanted[i])
                                          : std::isnan(got[i]) && std::isnan(wanted[i]);
    if (!same && count++ == 0) first = i;
  }
  result.fault = count == 0 ? fmt::format("'{}' differs in the payload of a NaN", name)
                            : fmt::format(
                                  "'{}' must equal the reference bit for bit: {} of {} elements "
                                  "differ, first {} is {}, not {}",
                                  name, count, got.size(),
                                  index_text(actual, static_cast<std::int64_t>(first)), got[first],
                                  wanted[first]);
  return result;
}

Comparison compare_values(const std::string& name, std::span<const double> actual,
                          std::span<const double> exact, const Rough& rough, double floor) {
  Comparison result{.max_error = max_distance(actual, exact)};
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (is_same_kind(actual[i], exact[i])) continue;
    result.fault =
        fmt::format("'{}' element {} is {}, the reference has {}", name, i, actual[i], exact[i]);
    return result;
  }
  const double naive_error =
      rough.naive.empty() ? 0.0 : std::max(max_distance(rough.naive, exact), rough.drawn_error);
  const double bound = rough.naive.empty() ? kUlpsWithoutNaive * floor : 2.0 * naive_error + floor;
  const std::size_t row = rough.crossed.empty() ? actual.size() : rough.row;
  double worst = 0.0;
  for (std::size_t first = 0; first < actual.size(); first += row) {
    const double error = max_distance(actual.subspan(first, row), exact.subspan(first, row));
    const double crossing = rough.crossed.empty() ? 0.0
                                                  : max_distance(rough.crossed.subspan(first, row),
                                                                 rough.naive.subspan(first, row));
    const double allowed = std::max({bound, 2.0 * crossing + floor, rough.random_error + floor});
    if (error <= allowed || error <= worst) continue;
    worst = error;
    result.fault = fmt::format(
        "'{}' is off by {:.3g}, allowed is {:.3g} (naive evaluation {:.3g}, ulp {:.3g})", name,
        error, allowed, naive_error, floor);
  }
  return result;
}

Comparison compare_tolerance(const std::string& name, const TensorView& actual,
                             const TensorView& exact, const RoughTensors& rough) {
  if (!is_float(actual.dtype)) return compare_bits(name, actual, exact);
  std::vector<double> got = values_of(actual);
  std::vector<double> wanted = values_of(exact);
  const auto values_or_none = [](const std::optional<TensorView>& tensor) {
    return tensor ? values_of(*tensor) : std::vector<double>{};
  };
  std::vector<double> naive = values_or_none(rough.naive);
  std::vector<double> crossed = values_or_none(rough.crossed);
  for (std::size_t i = 0; i < rough.random.has_open_sign.size(); ++i) {
    const bool is_open = (rough.random.has_open_sign[i] && got[i] == -wanted[i]) ||
                         (rough.random.has_product_of_zero[i] && std::isnan(got[i]));
    if (is_open) got[i] = wanted[i];
  }
  if (actual.dtype == DType::f16) {
    const std::vector<double> before = naive;
    close_infinities(before, rough.random.is_open, {wanted, got, naive, crossed});
  }
  return compare_values(name, got, wanted,
                        {.naive = naive,
                         .crossed = crossed,
                         .row = static_cast<std::size_t>(actual.shape[actual.rank - 1]),
                         .drawn_error = rough.drawn_error,
                         .random_error = rough.random.error},
                        ulp_of(actual.dtype, largest_finite(wanted)));
}

}  // namespace quire::tools
