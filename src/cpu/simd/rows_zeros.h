// SPDX-License-Identifier: Apache-2.0
// Rows of u4 codes, whose groups of columns have a zero beside their scale: value = code · scale + zero. In double, step
// by step as the reference has it: the difference of two f32 numbers is none, and bits of the cache depend on it.
#pragma once

#include "cpu/runtime/row_plan.h"
#include "cpu/simd/rows_encode.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

struct GroupScaling {
  StoredScale scale;
  StoredScale zero;
};

// The lowest value is code 0 and the highest one code 15, as nearly as the scale's dtype allows. NaN does not count.
inline GroupScaling scale_range(const float* values, std::int64_t count, DType scale_dtype) {
  double low = __builtin_inf();
  double high = -__builtin_inf();
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = values[i];
    low = value < low ? value : low;
    high = value > high ? value : high;
  }
  constexpr double kLargestCode = 15.0;
  // Equal infinities have no distance, and NaN alone has no range.
  const double range = high > low ? high - low : 0.0;
  GroupScaling scaling{.scale = round_scale(scale_dtype, range / kLargestCode),
                       .zero = round_scale(scale_dtype, high < low ? 0.0 : low)};
  if (scaling.zero.value == 0.0f) scaling.zero = round_scale(scale_dtype, 0.0);  // never -0
  return scaling;
}

// codes [count], one to a byte.
inline void quantize_from_zero(const float* values, std::int64_t count, const GroupScaling& by,
                               std::uint8_t* codes) {
  const double scale = by.scale.value;
  const double zero = by.zero.value;
  for (std::int64_t i = 0; i < count; ++i) {
    const double steps = (values[i] - zero) / scale;
    const double inside = steps > 0.0 ? (steps < 15.0 ? steps : 15.0) : 0.0;  // NaN: 0
    const double rounded = (scale == 0.0 ? 0.0 : inside) + 0x1p52;            // its unit is 1
    std::uint64_t word;
    __builtin_memcpy(&word, &rounded, sizeof(word));
    codes[i] = static_cast<std::uint8_t>(word & 0xf);
  }
}

// The columns of a run, which are one granule, and their scale and zero.
template <DType kFrom>
inline void encode_with_zeros(const std::byte* x, const RowRun& run, const RowGranule& granule,
                              std::byte* row) {
  constexpr std::int64_t kMostColumns = 64;  // of a group
  alignas(64) float values[kMostColumns];
  alignas(64) std::uint8_t codes[kMostColumns];
  widen_row<kFrom>(x, run.count, values);
  const GroupScaling scaling = scale_range(values, run.count, granule.scale_dtype);
  std::byte* numbers = row + granule.scale_offset;
  write_scale(granule.scale_dtype, scaling.scale, numbers);
  write_scale(granule.scale_dtype, scaling.zero, numbers + bytes_for(granule.scale_dtype, 1));
  quantize_from_zero(values, run.count, scaling, codes);
  for (std::int64_t i = 0; i < run.count; i += 2) {
    row[run.offset_bytes + i / 2] = static_cast<std::byte>(codes[i] | codes[i + 1] << 4);
  }
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
