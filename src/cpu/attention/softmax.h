// SPDX-License-Identifier: Apache-2.0
// Online softmax of a block of score rows: scores [rows, stride] of one chunk of keys become
// weights 2^(factor · (s - m)) in place, and each row's running maximum, sum and rescaling factor follow.
//
// Maxima are scores, not exponents: the largest weight is exactly 1, however large its score is, and the
// LSE has no rounding of a product in it. A row's sum is one vector of partial sums, added up at its end.
// Lanes are tied to absolute key positions, so a row's result does not depend on the rows beside it.
#pragma once

#include "cpu/attention/exponential.h"
#include "cpu/attention/item.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

inline constexpr float kInfinity = __builtin_inff();

// Scales that can wait for the exponent: the difference of two scores that passes f32's range is then a
// weight of 0, and the factor is a normal number.
inline constexpr double kSmallestFactor = 0x1p-100;
inline constexpr double kLargestFactor = 0x1p100;

constexpr int round_down_to_lanes(std::int64_t value) {
  return static_cast<int>(value / kF32Lanes * kF32Lanes);
}
constexpr int round_up_to_lanes(std::int64_t value) {
  return round_down_to_lanes(value + kF32Lanes - 1);
}

// Columns [begin, end) of a chunk that a row sees, and the whole vectors that hold them.
struct ScoreSpan {
  int begin = 0;
  int end = 0;

  bool is_empty() const { return begin >= end; }
  int first() const { return round_down_to_lanes(begin); }
  int last() const { return round_up_to_lanes(end); }
};

// Whether scores need more than one factor before the maximum: softcap, ALiBi, or a scale that
// would turn maxima into minima or leaves f32's range.
inline bool changes_scores(const ScoreRule& rule, const QueryRow& row) {
  return rule.softcap > 0.0f || row.slope != 0.0f || !(rule.scale >= kSmallestFactor) ||
         rule.scale > kLargestFactor;
}

// From scores to the exponent of 2.
inline float exponent_factor(const ScoreRule& rule, const QueryRow& row) {
  return changes_scores(rule, row) ? kLog2E : static_cast<float>(rule.scale * kExactLog2E);
}

// From scores to the natural log.
inline double natural_factor(const ScoreRule& rule, const QueryRow& row) {
  return changes_scores(rule, row) ? 1.0 : rule.scale;
}

// score ← softcap · tanh(scale · score / softcap) + slope · (key - slope_base)
inline void modify_scores(const ScoreRule& rule, const QueryRow& row, std::int64_t first_key,
                          ScoreSpan span, float* scores) {
  const F32Tag f32;
  const bool has_cap = rule.softcap > 0.0f;
  // A scale outside f32's range in two steps, each inside it.
  const double size = __builtin_fabs(rule.scale);
  const double far = size < kSmallestFactor ? 0x1p-60 : size > kLargestFactor ? 0x1p60 : 1.0;
  const double last = has_cap ? double{rule.softcap} : far;
  const F32Vector inner = hn::Set(f32, static_cast<float>(rule.scale / last));
  const F32Vector outer = hn::Set(f32, static_cast<float>(last));
  const F32Vector slope = hn::Set(f32, row.slope);
  for (int j = span.first(); j < span.last(); j += kF32Lanes) {
    F32Vector score = hn::Mul(hn::LoadU(f32, scores + j), inner);
    if (has_cap) score = tanh_vector(score);
    const auto distance = static_cast<float>(first_key + j - row.slope_base);
    const F32Vector distances = hn::Iota(f32, distance);
    score = hn::MulAdd(slope, distances, hn::Mul(score, outer));
    hn::StoreU(score, f32, scores + j);
  }
}

// -inf in the columns of the span's vectors that lie outside it.
inline void hide_edges(ScoreSpan span, float* scores) {
  for (int j = span.first(); j < span.begin; ++j) scores[j] = -kInfinity;
  for (int j = span.end; j < span.last(); ++j) scores[j] = -kInfinity;
}

// -inf where visible is 0.
inline void hide_masked(ScoreSpan span, const std::uint8_t* visible, float* scores) {
  for (int j = span.begin; j < span.end; ++j) {
    scores[j] = visible[j] != 0 ? scores[j] : -kInfinity;
  }
}

// Four chains hide the latency of a maximum. NaN may be lost here; the weights keep it.
inline float row_maximum(ScoreSpan span, const float* scores) {
  const F32Tag f32;
  F32Vector largest[4];
  for (F32Vector& vector : largest) vector = hn::Set(f32, -kInfinity);
  int j = span.first();
  for (; j + 4 * kF32Lanes <= span.last(); j += 4 * kF32Lanes) {
    for (int i = 0; i < 4; ++i) {
      largest[i] = hn::Max(largest[i], hn::LoadU(f32, scores + j + i * kF32Lanes));
    }
  }
  for (; j < span.last(); j += kF32Lanes) {
    largest[0] = hn::Max(largest[0], hn::LoadU(f32, scores + j));
  }
  largest[0] = hn::Max(largest[1], largest[0]);
  largest[2] = hn::Max(largest[3], largest[2]);
  return hn::GetLane(hn::MaxOfLanes(f32, hn::Max(largest[2], largest[0])));
}

inline void fill_zero(float* values, int first, int last) {
  for (int j = first; j < last; ++j) values[j] = 0.0f;
}

// scores ← 2^(factor · (score - maximum)) in the span, 0 elsewhere in `used`; sums = sums · decay + weights.
// maximum: of the row, 0 where it has seen nothing.
template <typename Exponential>
inline void weigh_span(ScoreSpan span, ScoreSpan used, float factor, float maximum, float decay,
                       float* scores, float* sums) {
  const F32Tag f32;
  const F32Vector factors = hn::Set(f32, factor);
  const F32Vector maxima = hn::Set(f32, maximum);
  F32Vector sum = hn::Mul(hn::LoadU(f32, sums), hn::Set(f32, decay));
  fill_zero(scores, used.begin, span.first());
  for (int j = span.first(); j < span.last(); j += kF32Lanes) {
    // Not a fused multiply-add: at the maximum it would leave the rounding of a product, and a weight beside 1 is
    // rounded to bf16 where the sum is not.
    const F32Vector distance = hn::Sub(hn::LoadU(f32, scores + j), maxima);
    const F32Vector weight = exp2_vector<Exponential>(hn::Mul(distance, factors));
    hn::StoreU(weight, f32, scores + j);
    sum = hn::Add(sum, weight);
  }
  fill_zero(scores, span.last(), used.end);
  hn::StoreU(sum, f32, sums);
}

// maxima ← max(maxima, found); decay ← 2^(factor · (old - new)); shift ← new. A row that has seen nothing yet
// keeps -inf and shifts by 0, so that its weights are 2^-inf = 0 and not NaN.
inline void advance_maxima(const float* found, const float* factors, int count, float* maxima,
                           float* decay, float* shift) {
  const F32Tag f32;
  for (int r = 0; r < count; r += kF32Lanes) {
    const F32Vector old = hn::LoadU(f32, maxima + r);
    const F32Vector next = hn::Max(old, hn::LoadU(f32, found + r));
    const auto is_blind = hn::Eq(next, hn::Set(f32, -kInfinity));
    const F32Vector base = hn::IfThenZeroElse(is_blind, next);
    const F32Vector distance = hn::Mul(hn::Sub(old, base), hn::LoadU(f32, factors + r));
    const F32Vector ratio = exp2_vector<F32Exponential>(distance);
    hn::StoreU(next, f32, maxima + r);
    hn::StoreU(hn::IfThenElse(is_blind, hn::Set(f32, 1.0f), ratio), f32, decay + r);
    hn::StoreU(base, f32, shift + r);
  }
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
