// SPDX-License-Identifier: Apache-2.0
// Online softmax of a block of score rows: scores [rows, stride] of one chunk of keys become
// weights 2^(s - m) in place, and each row's running maximum, sum and rescaling factor follow.
//
// Maxima are in units of log4: half of what the exponent of 2 is, so that no finite score passes f32's
// range on its way there. A row's sum is kept as one vector of partial sums, added up once at its end.
// Lanes are tied to absolute key positions, so a row's result does not depend on the rows beside it.
#pragma once

#include "cpu/attention/exponential.h"
#include "cpu/attention/item.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

inline constexpr float kInfinity = __builtin_inff();

// From here on f32 numbers in units of log4 are a whole exponent apart. A fused multiply-add, which does
// not round its product, would then miss 0 at the maximum itself by more than weights can bear.
inline constexpr float kFarMaximum = 0x1p23f;

inline bool is_far(float maximum) {
  return __builtin_fabsf(maximum) >= kFarMaximum;
}

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
// would turn maxima into minima.
inline bool changes_scores(const ScoreRule& rule, const QueryRow& row) {
  return rule.softcap > 0.0f || row.slope != 0.0f || static_cast<float>(rule.scale) <= 0.0f;
}

// From scores to the exponent of 2.
inline float exponent_factor(const ScoreRule& rule, const QueryRow& row) {
  return changes_scores(rule, row) ? kLog2E : static_cast<float>(rule.scale * kExactLog2E);
}

// What an exponent of 2 is of the natural log: ln 2, but for the rounding of the factor, which in a large
// LSE would show.
inline double natural_unit(const ScoreRule& rule, const QueryRow& row) {
  const float factor = exponent_factor(rule, row);
  if (factor < __FLT_MIN__) return 1.0 / kExactLog2E;  // a quotient of subnormal numbers is none
  return (changes_scores(rule, row) ? 1.0 : rule.scale) / double{factor};
}

// score ← softcap · tanh(scale · score / softcap) + slope · (key - slope_base)
inline void modify_scores(const ScoreRule& rule, const QueryRow& row, std::int64_t first_key,
                          ScoreSpan span, float* scores) {
  const F32Tag f32;
  const bool has_cap = rule.softcap > 0.0f;
  const F32Vector inner =
      hn::Set(f32, static_cast<float>(has_cap ? rule.scale / rule.softcap : rule.scale));
  const F32Vector outer = hn::Set(f32, has_cap ? rule.softcap : 1.0f);
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

// log2 of a score's weight relative to the row's maximum.
struct NearExponents {
  NearExponents(float factor, float maximum)
      : factors(hn::Set(F32Tag(), factor)), shifts(hn::Set(F32Tag(), -2.0f * maximum)) {}
  F32Vector operator()(F32Vector scores) const { return hn::MulAdd(scores, factors, shifts); }

  F32Vector factors;
  F32Vector shifts;
};

// The product is rounded as the maximum was: the largest score's exponent is 0, however large it is.
struct FarExponents {
  FarExponents(float factor, float maximum)
      : halves(hn::Set(F32Tag(), 0.5f * factor)), maxima(hn::Set(F32Tag(), maximum)) {}
  F32Vector operator()(F32Vector scores) const {
    const F32Vector distance = hn::Sub(hn::Mul(scores, halves), maxima);
    return hn::Add(distance, distance);
  }

  F32Vector halves;
  F32Vector maxima;
};

// scores ← 2^exponents(score) in the span, 0 elsewhere in `used`; sums = sums · decay + weights.
template <typename Exponential, typename Exponents>
inline void exponentiate(ScoreSpan span, ScoreSpan used, const Exponents& exponents, float decay,
                         float* scores, float* sums) {
  const F32Tag f32;
  F32Vector sum = hn::Mul(hn::LoadU(f32, sums), hn::Set(f32, decay));
  fill_zero(scores, used.begin, span.first());
  for (int j = span.first(); j < span.last(); j += kF32Lanes) {
    const F32Vector weight = exp2_vector<Exponential>(exponents(hn::LoadU(f32, scores + j)));
    hn::StoreU(weight, f32, scores + j);
    sum = hn::Add(sum, weight);
  }
  fill_zero(scores, span.last(), used.end);
  hn::StoreU(sum, f32, sums);
}

// factor: from scores to log2. maximum: of the row, 0 where it has seen nothing.
template <typename Exponential>
inline void weigh_span(ScoreSpan span, ScoreSpan used, float factor, float maximum, float decay,
                       float* scores, float* sums) {
  if (is_far(maximum)) {
    exponentiate<Exponential>(span, used, FarExponents(factor, maximum), decay, scores, sums);
  } else {
    exponentiate<Exponential>(span, used, NearExponents(factor, maximum), decay, scores, sums);
  }
}

// maxima ← max(maxima, found); decay ← 4^(old - new); shift ← new. A row that has seen nothing yet
// keeps -inf and shifts by 0, so that its weights are 2^-inf = 0 and not NaN.
inline void advance_maxima(const float* found, int count, float* maxima, float* decay,
                           float* shift) {
  const F32Tag f32;
  for (int r = 0; r < count; r += kF32Lanes) {
    const F32Vector old = hn::LoadU(f32, maxima + r);
    const F32Vector next = hn::Max(old, hn::LoadU(f32, found + r));
    const auto is_blind = hn::Eq(next, hn::Set(f32, -kInfinity));
    const F32Vector base = hn::IfThenZeroElse(is_blind, next);
    const F32Vector distance = hn::Sub(old, base);
    const F32Vector ratio = exp2_vector<F32Exponential>(hn::Add(distance, distance));
    hn::StoreU(next, f32, maxima + r);
    hn::StoreU(hn::IfThenElse(is_blind, hn::Set(f32, 1.0f), ratio), f32, decay + r);
    hn::StoreU(base, f32, shift + r);
  }
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
