// SPDX-License-Identifier: Apache-2.0
// What the rows of an item have in a workspace before the first key and after the last one.
#pragma once

#include "cpu/attention/finish_row.h"
#include "cpu/attention/workspace.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

template <typename Engine>
inline void clear_states(const AttentionItem& item, const Workspace<Engine>& space) {
  const std::int64_t rows = item.num_heads * space.padded_rows;
  for (std::int64_t i = 0; i < rows + kF32Lanes; ++i) space.maxima[i] = -kInfinity;
  for (std::int64_t i = 0; i < rows * kF32Lanes; ++i) space.sums[i] = 0.0f;
  for (std::int64_t i = 0; i < rows * kF32Lanes; ++i) space.rounded_sums[i] = 0.0f;
  for (std::int64_t i = 0; i < item.num_heads * space.blocks; ++i) space.started[i] = false;
}

// What the weights of a row are relative to, in units of the natural log. An engine whose maxima are not scores says
// it its own way.
template <typename Engine> struct NaturalMaximum {
  static double of(const ScoreRule& rule, const QueryRow& row, float maximum) {
    return double{maximum} * natural_factor(rule, row);
  }
};

inline float sum_of_lanes(const float* sums) {
  const F32Tag f32;
  return hn::GetLane(hn::SumOfLanes(f32, hn::LoadU(f32, sums)));
}

// The result of a row, or its state where the item has only some of its keys.
template <typename Engine>
inline void end_row(const AttentionItem& item, const Workspace<Engine>& space, std::int64_t head,
                    std::int64_t row) {
  const std::int64_t from = space.state(head, row);
  const WeightSum sum{.exact = sum_of_lanes(space.sums + from * kF32Lanes),
                      .rounded = sum_of_lanes(space.rounded_sums + from * kF32Lanes)};
  float* out = space.has_started(head, row) ? space.outs + from * space.out_stride : nullptr;
  const std::int64_t to = head * item.rows_per_head + row;
  // A NaN score leaves no trace in a maximum, but it does in the sum.
  const float known = sum.exact == sum.exact ? space.maxima[from] : sum.exact;
  const double maximum = NaturalMaximum<Engine>::of(item.score, item.rows[to], known);
  if (item.states.out == nullptr) {
    finish_row(item.rows[to], out, maximum, sum, item.value_width, item.out_dtype);
    return;
  }
  item.states.maximum[to] = maximum;
  item.states.sum[to] = sum.exact;
  float* state_out = item.states.out + to * item.value_width;
  if (out == nullptr) {
    fill_zero(state_out, 0, static_cast<int>(item.value_width));
  } else {
    __builtin_memcpy(state_out, out, static_cast<std::size_t>(item.value_width) * sizeof(float));
    // A state has one sum.
    if (sum.rounded != sum.exact && sum.rounded > 0.0f) {
      scale_values(state_out, item.value_width, sum.exact / sum.rounded);
    }
  }
}

template <typename Engine>
inline void end_rows(const AttentionItem& item, const Workspace<Engine>& space) {
  for (std::int64_t head = 0; head < item.num_heads; ++head) {
    for (std::int64_t row = 0; row < item.rows_per_head; ++row) end_row(item, space, head, row);
  }
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
