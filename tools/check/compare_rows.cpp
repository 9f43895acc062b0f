// SPDX-License-Identifier: Apache-2.0
// The rows that an op stored, read back through the page table of each layout.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tools/case/row_address.h"
#include "tools/check/compare.h"

namespace quire::tools {
namespace {

std::string describe(const RowPlace& place) {
  return fmt::format("{} row of sequence {}, token {}, head {}",
                     place.side == Side::key ? "key" : "value", place.sequence, place.token,
                     place.head);
}

std::string describe(const StoredNumber& stored) {
  const std::string product = fmt::format("{} x {}", stored.number, stored.scale);
  return stored.dtype == DType::u4 ? fmt::format("{} + {}", product, stored.zero) : product;
}

// The same place in a cache with other layers.
RowPlace in_layer(RowPlace place, std::int64_t layer) {
  place.layer = layer;
  return place;
}

bool has_equal_bits(double left, double right) {
  return std::bit_cast<std::uint64_t>(left) == std::bit_cast<std::uint64_t>(right);
}

// The first column whose number, scale or zero differs; -1 if none does.
std::int32_t find_different_column(const WrittenRows& actual, const WrittenRows& expected,
                                   const RowPlace& place) {
  const std::int32_t width = actual.cache.row_format->width();
  for (std::int32_t column = 0; column < width; ++column) {
    const StoredNumber got = read_number(actual.cache, place, column);
    const StoredNumber wanted =
        read_number(expected.cache, in_layer(place, expected.layer), column);
    const bool same = has_equal_bits(got.number, wanted.number) &&
                      has_equal_bits(got.scale, wanted.scale) &&
                      has_equal_bits(got.zero, wanted.zero);
    if (!same) return column;
  }
  return -1;
}

struct RowValues {
  std::vector<double> values;
  double floor = 0.0;  // the largest ulp of a stored number, in units of the value
};

RowValues read_rows(const WrittenRows& rows) {
  RowValues result;
  const std::int32_t width = rows.cache.row_format->width();
  for (const RowPlace& place : rows.places()) {
    if (row_address(rows.cache, place) == nullptr) continue;
    for (std::int32_t column = 0; column < width; ++column) {
      const StoredNumber stored = read_number(rows.cache, place, column);
      result.values.push_back(stored.value());
      result.floor =
          std::max(result.floor, ulp_of(stored.dtype, stored.number) * std::abs(stored.scale));
    }
  }
  return result;
}

}  // namespace

Comparison compare_row_bits(const WrittenRows& actual, const WrittenRows& expected) {
  Comparison result;
  std::int64_t count = 0;
  for (const RowPlace& place : actual.places()) {
    if (row_address(actual.cache, place) == nullptr) continue;
    const std::int32_t column = find_different_column(actual, expected, place);
    if (column < 0) continue;
    const StoredNumber got = read_number(actual.cache, place, column);
    const StoredNumber wanted =
        read_number(expected.cache, in_layer(place, expected.layer), column);
    result.max_error = std::max(result.max_error, std::abs(got.value() - wanted.value()));
    if (count++ == 0) {
      result.fault = fmt::format("{} must equal the reference bit for bit: column {} is {}, not {}",
                                 describe(place), column, describe(got), describe(wanted));
    }
  }
  if (count > 1) result.fault += fmt::format(" (and {} rows more)", count - 1);
  return result;
}

Comparison compare_row_tolerance(const WrittenRows& actual, const WrittenRows& exact,
                                 const std::optional<WrittenRows>& naive,
                                 const std::optional<WrittenRows>& crossed, double random_error) {
  const RowValues wanted = read_rows(exact);
  const RowValues got = read_rows(actual);
  const RowValues rough = naive.has_value() ? read_rows(*naive) : RowValues{};
  const RowValues moved = crossed.has_value() ? read_rows(*crossed) : RowValues{};
  return compare_values(
      "stored rows", got.values, wanted.values,
      {.naive = rough.values, .crossed = moved.values, .random_error = random_error}, wanted.floor);
}

double max_row_error(const WrittenRows& actual, const WrittenRows& exact) {
  const RowValues got = read_rows(actual);
  const RowValues wanted = read_rows(exact);
  double largest = 0.0;
  for (std::size_t i = 0; i < got.values.size(); ++i) {
    const double error = std::abs(got.values[i] - wanted.values[i]);
    if (std::isfinite(error)) largest = std::max(largest, error);
  }
  return largest;
}

}  // namespace quire::tools
