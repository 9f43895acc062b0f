// SPDX-License-Identifier: Apache-2.0
// The end of a row: the sink joins the denominator, the output is normalised, rounded and stored.
#pragma once

#include "cpu/attention/item.h"
#include "cpu/attention/softmax.h"
#include "cpu/simd/convert_row.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

struct Denominator {
  float factor;  // what an unnormalised output is multiplied by
  float lse;     // natural log of the denominator
};

// maximum in units of log2, sink and the offset that the scores lack in those of the natural log.
// Without keys and sink: 0 and -inf.
inline Denominator denominator_of(float maximum, float sum, float sink, double offset) {
  constexpr double kLn2 = 0.69314718055994530942;
  if (sink == -kInfinity && maximum != -kInfinity) {
    return {.factor = 1.0f / sum,
            .lse = static_cast<float>((maximum + __builtin_log2(double{sum})) * kLn2 + offset)};
  }
  const double sink_power = (sink - offset) / kLn2;
  const double top = maximum < sink_power ? sink_power : maximum;  // NaN stays
  if (top == -__builtin_inf()) return {.factor = 0.0f, .lse = -kInfinity};
  const double weight = __builtin_exp2(maximum - top);
  const double denominator = sum * weight + __builtin_exp2(sink_power - top);
  return {.factor = static_cast<float>(weight / denominator),
          .lse = static_cast<float>((top + __builtin_log2(denominator)) * kLn2 + offset)};
}

inline void scale_values(float* values, std::int64_t count, float factor) {
  for (std::int64_t i = 0; i < count; ++i) values[i] *= factor;
}

// out [width] is used up; null: no key was seen.
inline void finish_row(const QueryRow& row, float* out, float maximum, float sum,
                       std::int64_t width, DType out_dtype) {
  const double offset = row.slope == 0.0f ? 0.0
                                          : static_cast<double>(row.slope) *
                                                static_cast<double>(row.slope_base - row.position);
  const Denominator denominator = denominator_of(maximum, sum, row.sink, offset);
  if (row.lse != nullptr) *row.lse = denominator.lse;
  if (out == nullptr) {
    __builtin_memset(row.out, 0, static_cast<std::size_t>(bytes_for(out_dtype, width)));
    return;
  }
  scale_values(out, width, denominator.factor);
  narrow_row(out_dtype, out, width, row.out);
}

// States of the same row over disjoint keys, in the order of the keys. out: scratch [value_width].
inline void merge_row(const MergeItem& item, std::int64_t row, float* out) {
  const RowStates& states = item.states;
  float top = -kInfinity;
  for (std::int64_t split = 0; split < item.num_splits; ++split) {
    const float maximum = states.maximum[split * item.split_rows + row];
    if (!(maximum <= top)) top = maximum;
  }
  fill_zero(out, 0, static_cast<int>(item.value_width));
  float sum = 0.0f;
  for (std::int64_t split = 0; split < item.num_splits; ++split) {
    const std::int64_t index = split * item.split_rows + row;
    if (states.maximum[index] == -kInfinity) continue;
    const float weight = static_cast<float>(__builtin_exp2(double{states.maximum[index]} - top));
    const float* part = states.out + index * item.value_width;
    for (std::int64_t i = 0; i < item.value_width; ++i) out[i] += part[i] * weight;
    sum += states.sum[index] * weight;
  }
  finish_row(item.rows[row], top == -kInfinity ? nullptr : out, top, sum, item.value_width,
             item.out_dtype);
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
