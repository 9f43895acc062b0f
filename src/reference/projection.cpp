// SPDX-License-Identifier: Apache-2.0
#include "reference/projection.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/block_format.h"
#include "reference/weight.h"

namespace quire::reference {
namespace {

constexpr std::int64_t kInputBlock = 128;

// The scale of x(token, column): [1, 1] tensor, [tokens, 1] token, [tokens, ceil(hidden/128)]
// block.
double input_scale(const Projection& args, std::int64_t token, std::int64_t column) {
  if (!args.input_scale) return 1.0;
  const TensorView& scale = *args.input_scale;
  return scale.load(
      {scale.shape[0] == 1 ? 0 : token, scale.shape[1] == 1 ? 0 : column / kInputBlock});
}

Matrix scaled_input(const Projection& args) {
  const std::int64_t tokens = args.x.shape[0];
  const std::int64_t hidden = args.x.shape[1];
  Matrix x(tokens, hidden);
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::int64_t column = 0; column < hidden; ++column) {
      x.at(token, column) = args.x.load({token, column}) * input_scale(args, token, column);
    }
  }
  return x;
}

// Columns of the weight, in its stored order, that share a scale.
std::int64_t scale_group(const Weight& weight) {
  return weight.group_size != 0 ? weight.group_size : block_format(weight.format).group;
}

// x ← scale · round(x / scale), scale = amax / 127, both quotients in fp32, per token and group.
void round_to_int8(const Weight& weight, std::int64_t token, Matrix& x) {
  const std::int64_t group = scale_group(weight);
  for (std::int64_t first = 0; first < x.columns; first += group) {
    double amax = 0.0;
    for (std::int64_t k = first; k < first + group; ++k) {
      const double magnitude = std::abs(x.at(token, input_column(weight, k)));
      if (magnitude > amax) amax = magnitude;  // NaN does not count
    }
    const double scale = round_to(DType::f32, amax / 127.0);
    for (std::int64_t k = first; k < first + group; ++k) {
      double& value = x.at(token, input_column(weight, k));
      // The quotient is one of fp32: ties between two codes are common where x has few bits.
      const double quotient = scale == 0.0 ? 0.0 : round_to(DType::f32, value / scale);
      value = scale * round_to(DType::i8, quotient);
    }
  }
}

// Whether the naive evaluation may round to tf32 what it multiplies.
bool has_tf32_products(const Projection& args, Arithmetic arithmetic) {
  return arithmetic != Arithmetic::exact && args.allow_tf32 && args.x.dtype == DType::f32 &&
         args.weight.format == WeightFormat::dense && args.weight.data.dtype == DType::f32;
}

// Of an f32 number, to nearest, ties to even.
double round_to_tf32(double value) {
  if (!std::isfinite(value)) return value;
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return std::bit_cast<float>((bits + 0xFFF + (bits >> 13 & 1)) & ~std::uint32_t{0x1FFF});
}

// Row n of the weight in the column order of x.
std::vector<double> weight_row(const Weight& weight, std::int64_t n) {
  const std::vector<double> stored = dequantize_row(weight, n);
  if (!weight.perm) return stored;
  std::vector<double> row(stored.size());
  for (std::size_t k = 0; k < stored.size(); ++k) {
    row[static_cast<std::size_t>(input_column(weight, static_cast<std::int64_t>(k)))] = stored[k];
  }
  return row;
}

// Whether the naive evaluation may add as the tensor cores do. Block scales multiply sums over 128 of K.
bool has_short_sums(const Projection& args, Arithmetic arithmetic) {
  if (arithmetic == Arithmetic::exact || !args.allow_fast_accum) return false;
  return is_fp8(args.x.dtype) && args.weight.format == WeightFormat::fp8 &&
         args.input_scale->shape[1] == 1 && args.weight.scale->shape[1] == 1;
}

}  // namespace

Matrix project(const Projection& args, Arithmetic arithmetic) {
  Matrix x = scaled_input(args);
  const std::int64_t tokens = args.x.shape[0];
  if (args.activations == Activations::int8) {
    for (std::int64_t token = 0; token < tokens; ++token) round_to_int8(args.weight, token, x);
  }
  const bool is_short = has_short_sums(args, arithmetic);
  const bool is_tf32 = has_tf32_products(args, arithmetic);
  if (is_tf32) std::ranges::transform(x.values, x.values.begin(), round_to_tf32);
  std::vector<std::span<const double>> rows;
  for (std::int64_t token = 0; token < tokens; ++token) rows.push_back(x.row(token));
  Matrix y(tokens, args.weight.rows());
  for (std::int64_t n = 0; n < args.weight.rows(); ++n) {
    std::vector<double> w = weight_row(args.weight, n);
    if (is_tf32) std::ranges::transform(w, w.begin(), round_to_tf32);
    const double bias = args.bias ? args.bias->load({n}) : 0.0;
    std::vector<double> sums;
    if (is_short) {
      for (const std::span<const double> row : rows) sums.push_back(short_dot(row, w));
    } else {
      sums = dots(arithmetic, w, rows);
    }
    for (std::int64_t token = 0; token < tokens; ++token) {
      const double sum = sums[static_cast<std::size_t>(token)];
      y.at(token, n) = intermediate(arithmetic, args.out.dtype, sum) + bias;
    }
  }
  return y;
}

}  // namespace quire::reference
