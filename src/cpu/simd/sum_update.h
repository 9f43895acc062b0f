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
    if (row_scales != nullptr) {
      column_mins != nullptr ? run<true, true>(first, last) : run<true, false>(first, last);
    } else {
      column_mins != nullptr ? run<false, true>(first, last) : run<false, false>(first, last);
    }
  }

 private:
  template <bool kScalesRows, bool kHasMins> void run(int first, int last) const {
    const F32Tag f32;
    const bool adds = accumulate == Accumulate::add;
    for (int column = 0; column < columns; column += kF32Lanes) {
      const F32Vector column_scale =
          column_scales == nullptr ? hn::Set(f32, 1.0f) : hn::LoadU(f32, column_scales + column);
      const F32Vector min = kHasMins ? hn::LoadU(f32, column_mins + column) : hn::Zero(f32);
      for (int row = first; row < last; ++row) {
        const F32Vector part = hn::LoadU(f32, partial + row * partial_stride + column);
        float* sum = sums + row * sums_stride + column;
        F32Vector scale = column_scale;
        if constexpr (kScalesRows) scale = hn::Mul(scale, hn::Set(f32, row_scales[row]));
        F32Vector value =
            adds ? hn::MulAdd(part, scale, hn::LoadU(f32, sum)) : hn::Mul(part, scale);
        if constexpr (kHasMins) {
          const float row_sum = kScalesRows ? row_sums[row] * row_scales[row] : row_sums[row];
          value = hn::MulAdd(min, hn::Set(f32, row_sum), value);
        }
        hn::StoreU(value, f32, sum);
      }
    }
  }
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
