// SPDX-License-Identifier: Apache-2.0
// Y = X · Wᵀ + bias in doubles, for the ops that store it. Naive: fp32 sums over dequantized operands, Y rounded to out's
// dtype before the bias is added in that dtype.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/projection.h"
#include "reference/arithmetic.h"

namespace quire::reference {

// Row-major [rows, columns] doubles.
struct Matrix {
  std::int64_t columns;
  std::vector<double> values;

  Matrix(std::int64_t rows, std::int64_t row_length)
      : columns(row_length), values(static_cast<std::size_t>(rows * row_length)) {}
  double& at(std::int64_t row, std::int64_t column) {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
  std::span<const double> row(std::int64_t index) const {
    return std::span(values).subspan(static_cast<std::size_t>(index * columns),
                                     static_cast<std::size_t>(columns));
  }
};

// Y [tokens, N].
Matrix project(const Projection& args, Arithmetic arithmetic);

}  // namespace quire::reference
