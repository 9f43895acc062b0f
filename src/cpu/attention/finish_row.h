// SPDX-License-Identifier: Apache-2.0
// The end of a row: the sink joins the denominator, the output is normalised, rounded and stored.
#pragma once

#include "cpu/attention/item.h"
#include "cpu/attention/row_decode.h"
#include "cpu/attention/softmax.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// The sum of a row's weights with its sink, relative to e^top.
struct Denominator {
  double top;
  double sum;     // positive, or NaN
  double weight;  // of what is relative to the row's maximum
};

// maximum and sink in units of the natural log. The row has a key: a NaN, wherever it is, reaches the sum.
inline Denominator denominator_of(double maximum, float sum, double sink) {
  if (sink == -kInfinity) return {.top = maximum, .sum = double{sum}, .weight = 1.0};
  const double top = maximum < sink ? sink : maximum;
  const double weight = __builtin_exp(maximum - top);
  return {.top = top, .sum = sum * weight + __builtin_exp(sink - top), .weight = weight};
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

// Of a row's weights. `rounded`: as they were multiplied with V. Where one weight outweighs all others, rounding it in
// the product alone would leave its error in the output; where the LSE comes from, nothing is rounded.
struct WeightSum {
  float exact;
  float rounded;
};

// out [width] is used up. maximum: in units of the natural log, -inf if no key was seen, or none that weighs
// anything; out may be null then.
inline void finish_row(const QueryRow& row, float* out, double maximum, const WeightSum& sum,
                       std::int64_t width, DType out_dtype) {
  if (maximum == -kInfinity) {
    if (row.lse != nullptr) *row.lse = row.sink;
    __builtin_memset(row.out, 0, static_cast<std::size_t>(bytes_for(out_dtype, width)));
    return;
  }
  // What the scores lack: slope_base is not the row's position.
  const double offset = row.slope == 0.0f ? 0.0
                                          : static_cast<double>(row.slope) *
                                                static_cast<double>(row.slope_base - row.position);
  Denominator denominator = denominator_of(maximum, sum.exact, row.sink - offset);
  if (row.lse != nullptr) {
    *row.lse = static_cast<float>(denominator.top + __builtin_log(denominator.sum) + offset);
  }
  if (sum.rounded != sum.exact) {
    denominator = denominator_of(maximum, sum.rounded, row.sink - offset);
  }
  const auto factor = static_cast<float>(denominator.weight / denominator.sum);
  store_scaled(out, width, factor, out_dtype, row.out);
}

// States of the same row over disjoint keys, in the order of the keys. out: scratch [value_width].
inline void merge_row(const MergeItem& item, std::int64_t row, float* out) {
  const RowStates& states = item.states;
  double top = -kInfinity;
  for (std::int64_t split = 0; split < item.num_splits; ++split) {
    const double maximum = states.maximum[split * item.split_rows + row];
    if (maximum > top || maximum != maximum) top = maximum;  // once NaN, it stays
  }
  if (top == -kInfinity) {
    finish_row(item.rows[row], nullptr, top, {}, item.value_width, item.out_dtype);
    return;
  }
  fill_zero(out, 0, static_cast<int>(item.value_width));
  float sum = 0.0f;
  for (std::int64_t split = 0; split < item.num_splits; ++split) {
    const std::int64_t index = split * item.split_rows + row;
    // A maximum of -inf weighs 0, and is added all the same: an infinite value among its keys makes NaN.
    const auto weight = static_cast<float>(__builtin_exp(states.maximum[index] - top));
    const float* part = states.out + index * item.value_width;
    for (std::int64_t i = 0; i < item.value_width; ++i) out[i] += part[i] * weight;
    sum += states.sum[index] * weight;
  }
  finish_row(item.rows[row], out, top, {.exact = sum, .rounded = sum}, item.value_width,
             item.out_dtype);
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
