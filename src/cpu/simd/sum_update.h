// SPDX-License-Identifier: Apache-2.0
// Partial sums into the sums of a projection: sums (+)= partial · (scale of the column · scale of
// the row), and then + min of the column · (sum of the row · its scale) for weights with mins. One
// fused multiply-add per element and term, in the order of the groups, on every path.
#pragma once

#include "cpu/simd/convert.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// Rows [0, rows) of one block of `columns` (whole vectors).
struct SumUpdate {
  const float* partial;
  std::int64_t partial_stride;
  float* sums;
  std::int64_t sums_stride;
  const float* column_scales;  // [columns], null: ones
  const float* row_scales;     // [rows], null: ones
  const float* column_mins;    // [columns], null: none
  const float* row_sums;       // [rows] of X over the group, with column_mins
  int rows;
  int columns;
  Accumulate accumulate;

  void run(int first, int last) const {
    const F32Tag f32;
    for (int row = first; row < last; ++row) {
      const float* part = partial + row * partial_stride;
      float* sum = sums + row * sums_stride;
      const F32Vector row_scale = hn::Set(f32, row_scales == nullptr ? 1.0f : row_scales[row]);
      const F32Vector row_sum =
          column_mins == nullptr ? hn::Zero(f32) : hn::Mul(hn::Set(f32, row_sums[row]), row_scale);
      for (int column = 0; column < columns; column += kF32Lanes) {
        F32Vector value = hn::LoadU(f32, part + column);
        if (column_scales != nullptr) {
          const F32Vector scale = hn::Mul(hn::LoadU(f32, column_scales + column), row_scale);
          value = accumulate == Accumulate::add
                      ? hn::MulAdd(value, scale, hn::LoadU(f32, sum + column))
                      : hn::Mul(value, scale);
        } else if (accumulate == Accumulate::add) {
          value = hn::Add(value, hn::LoadU(f32, sum + column));
        }
        if (column_mins != nullptr) {
          value = hn::MulAdd(hn::LoadU(f32, column_mins + column), row_sum, value);
        }
        hn::StoreU(value, f32, sum + column);
      }
    }
  }
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
