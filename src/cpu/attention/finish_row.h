// SPDX-License-Identifier: Apache-2.0
// The end of a row: the sink joins the denominator, the output is normalised, rounded and stored.
#pragma once

#include "cpu/attention/item.h"
#include "cpu/attention/row_decode.h"
#include "cpu/attention/softmax.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// The sum of a row's weights with its sink, relative to 2^top.
struct Denominator {
  double top;     // log2
  double sum;     // 0: neither key nor sink
  double weight;  // of what is relative to 2^maximum
};

// maximum in units of log2, sink and the offset that the scores lack in those of the natural log.
inline Denominator denominator_of(float maximum, float sum, float sink, double offset) {
  if (sink == -kInfinity) {
    return {.top = maximum, .sum = maximum == -kInfinity ? 0.0 : double{sum}, .weight = 1.0};
  }
  const double sink_power = (sink - offset) * double{kLog2E};
  const double top = maximum < sink_power ? sink_power : maximum;  // NaN stays
  if (top == -__builtin_inf()) return {.top = top, .sum = 0.0, .weight = 0.0};
  const double weight = __builtin_exp2(maximum - top);
  return {.top = top, .sum = sum * weight + __builtin_exp2(sink_power - top), .weight = weight};
}

inline void scale_values(float* values, std::int64_t count, float factor) {
  for (std::int64_t i = 0; i < count; ++i) values[i] *= factor;
}

// out ← values · factor, rounded; values is used up.
inline void store_scaled(float* values, std::int64_t count, float factor, DType dtype,
                         std::byte* out) {
  std::int64_t done = 0;
  if (dtype == DType::bf16) {
    const F32Tag f32;
    auto* elements = reinterpret_cast<std::uint16_t*>(out);
    for (; done + kF32Lanes <= count; done += kF32Lanes) {
      const F32Vector scaled = hn::Mul(hn::LoadU(f32, values + done), hn::Set(f32, factor));
      store_element_vector(scaled, elements + done);
    }
    if (done == count) return;
  }
  scale_values(values + done, count - done, factor);
  narrow_row(dtype, values + done, count - done, out + bytes_for(dtype, done));
}

// out [width] is used up; null: no key was seen.
inline void finish_row(const QueryRow& row, float* out, float maximum, float sum,
                       std::int64_t width, DType out_dtype) {
  constexpr double kLn2 = 0.69314718055994530942;
  const double offset = row.slope == 0.0f ? 0.0
                                          : static_cast<double>(row.slope) *
                                                static_cast<double>(row.slope_base - row.position);
  const Denominator denominator = denominator_of(maximum, sum, row.sink, offset);
  const bool is_empty = denominator.sum == 0.0;
  if (row.lse != nullptr) {
    const double power = denominator.top + __builtin_log2(denominator.sum);
    *row.lse = is_empty ? -kInfinity : static_cast<float>(power * kLn2 + offset);
  }
  if (out == nullptr || is_empty) {
    __builtin_memset(row.out, 0, static_cast<std::size_t>(bytes_for(out_dtype, width)));
    return;
  }
  const auto factor = static_cast<float>(denominator.weight / denominator.sum);
  store_scaled(out, width, factor, out_dtype, row.out);
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
