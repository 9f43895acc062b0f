// SPDX-License-Identifier: Apache-2.0
#include "reference/fp8_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "quire/element.h"
#include "reference/tensor_row.h"

namespace quire::reference {
namespace {

constexpr double kLargestAmax = 1200.0;

void quantize_group(std::span<double> group, DType fp8, Arithmetic arithmetic, double reach) {
  const double amax = std::fmin(largest_magnitude(group), kLargestAmax);
  const double scale = round_to(DType::f32, amax / max_finite(fp8));
  const double reciprocal = scale == 0.0 ? 0.0 : round_to(DType::f32, 1.0 / scale);
  const bool vanishes = scale == 0.0 || std::isinf(reciprocal);
  for (double& x : group) {
    if (vanishes) {
      x = std::isnan(x) ? x : 0.0;
      continue;
    }
    const double quotient =
        arithmetic == Arithmetic::exact ? x / scale : in_register(arithmetic, x * reciprocal);
    x = round_within(arithmetic, fp8, quotient, reach / scale) * scale;
  }
}

}  // namespace

void quantize_blocks(std::span<double> row, DType fp8, Arithmetic arithmetic, double reach) {
  for (std::size_t first = 0; first < row.size(); first += kFp8Block) {
    const std::size_t count = std::min<std::size_t>(kFp8Block, row.size() - first);
    quantize_group(row.subspan(first, count), fp8, arithmetic, reach);
  }
}

std::vector<double> load_weight_row(const TensorView& weight,
                                    const std::optional<TensorView>& scale, std::int64_t outer,
                                    std::int64_t row) {
  std::vector<double> values = load_row(weight, outer, row);
  if (!scale) return values;
  const std::vector<double> scales = load_row(*scale, outer, row / kFp8Block);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] *= scales[i / kFp8Block];
  return values;
}

std::vector<double> load_weight_row(const TensorView& weight,
                                    const std::optional<TensorView>& scale, std::int64_t row) {
  std::vector<double> values = load_row(weight, row);
  if (!scale) return values;
  const std::vector<double> scales = load_row(*scale, row / kFp8Block);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] *= scales[i / kFp8Block];
  return values;
}

std::vector<double> block_dots(Arithmetic arithmetic, std::span<const double> left,
                               std::span<const std::span<const double>> rights) {
  const bool is_short =
      arithmetic.kind == Arithmetic::Kind::random && arithmetic.takes_fp8_products();
  if (!is_short) return dots(arithmetic, left, rights);
  std::vector<double> sums(rights.size());
  for (std::size_t first = 0; first < left.size(); first += kFp8Block) {
    const std::size_t count = std::min<std::size_t>(kFp8Block, left.size() - first);
    for (std::size_t j = 0; j < rights.size(); ++j) {
      const double sum = short_dot(left.subspan(first, count), rights[j].subspan(first, count));
      sums[j] = in_register(arithmetic, sums[j] + sum);
    }
  }
  return sums;
}

}  // namespace quire::reference
