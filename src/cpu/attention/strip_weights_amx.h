// SPDX-License-Identifier: Apache-2.0
// A strip of scores becomes weights. See cpu/attention/score_strips_amx.h for the rule of the
// maxima.
#pragma once

#include "cpu/attention/item_states.h"
#include "cpu/attention/row_pair_amx.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// Maxima are in units of log4: half of what the exponent of 2 is, so that no finite score passes f32's range on its way
// there. From here on such numbers are a whole exponent apart. A fused multiply-add, which does not round its product,
// would then miss 0 at the maximum itself by more than weights can bear.
inline constexpr float kFarMaximum = 0x1p23f;

inline bool is_far(float maximum) {
  return __builtin_fabsf(maximum) >= kFarMaximum;
}

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

// log4 in units of the natural log: 2 ln 2, but for the rounding of the factor, which in a large LSE would show.
template <> struct NaturalMaximum<AmxBf16> {
  static double of(const ScoreRule& rule, const QueryRow& row, float maximum) {
    return 2.0 * double{maximum} * natural_factor(rule, row) / double{exponent_factor(rule, row)};
  }
};

class StripWeigher {
 public:
  using Space = Workspace<AmxBf16>;

  StripWeigher(const AttentionItem& item, const Space& space)
      : item_(item), space_(space), scores_(space.scores) {}

  void begin() {
    const auto scaled = static_cast<float>(item_.score.scale * kExactLog2E);
    for (std::int64_t head = 0; head < item_.num_heads; ++head) {
      for (std::int64_t row = 0; row < space_.padded_rows; ++row) {
        const std::int64_t state = space_.state(head, row);
        const bool is_changed =
            row < item_.rows_per_head &&
            changes_scores(item_.score, item_.rows[head * item_.rows_per_head + row]);
        changes_some_ = changes_some_ || is_changed;
        space_.factors[state] = is_changed ? kLog2E : scaled;
        space_.shifts[state] = 0.0f;
        space_.limits[state] = -kInfinity;
      }
    }
  }

  // space.scores [32, 32] holds what the pair's rows and the strip's columns of the chunk gave.
  void weigh(const RowPair& pair, const KeyChunk& chunk, int strip, bool has_holes) {
    pair_ = &pair;
    chunk_ = &chunk;
    strip_ = strip;
    has_holes_ = has_holes;
    const int first = strip * kStripKeys;
    const bool is_plain = !changes_some_ && item_.mask == nullptr && !has_holes &&
                          first >= pair.common.begin && first + kStripKeys <= pair.common.end;
    for (first_row_ = 0; first_row_ < pair.count; first_row_ += kGroupRows) {
      if (!is_plain) prepare_group();
      if (is_limit_passed()) raise_group();
      exponentiate_group();
    }
  }

 private:
  static constexpr int kGroupRows = 16;
  // Weights stay below 2^kSlack: far from what f32 and bf16 hold.
  static constexpr float kSlack = 8.0f;
  static constexpr short kBf16One = 0x3f80;

  int group_rows() const {
    const int left = pair_->count - first_row_;
    return left < kGroupRows ? left : kGroupRows;
  }

  void exponentiate_group() const {
    if (has_far_rows_) return exponentiate_far_group();
    const std::int64_t state = pair_->state + first_row_;
    const float* scores = scores_ + first_row_ * kStripKeys;
    std::uint16_t* weights = weights_of(first_row_, strip_);
    const int count = group_rows();
    if (count == kGroupRows) {  // a count that the compiler knows
      for (int i = 0; i < kGroupRows; ++i) {
        exponentiate_row(state + i, scores + i * kStripKeys, weights + i * kStripKeys);
      }
      return;
    }
    for (int i = 0; i < count; ++i) {
      exponentiate_row(state + i, scores + i * kStripKeys, weights + i * kStripKeys);
    }
  }

  HWY_INLINE void exponentiate_row(std::int64_t state, const float* scores,
                                   std::uint16_t* weights) const {
    const F32Tag f32;
    const F32Vector factor = hn::Set(f32, space_.factors[state]);
    const F32Vector shift = hn::Set(f32, space_.shifts[state]);
    float* sums = space_.sums + state * kF32Lanes;
    const F32Vector left =
        exp2_vector<Bf16Exponential>(hn::MulSub(hn::Load(f32, scores), factor, shift));
    const F32Vector right =
        exp2_vector<Bf16Exponential>(hn::MulSub(hn::Load(f32, scores + 16), factor, shift));
    hn::Store(hn::Add(hn::Load(f32, sums), hn::Add(left, right)), f32, sums);
    store_weights(state, left, right, weights);
  }

  // Rounds the weights, and adds them up as the product with V will see them.
  HWY_INLINE void store_weights(std::int64_t state, F32Vector left, F32Vector right,
                                std::uint16_t* weights) const {
    const __m512bh rounded = _mm512_cvtne2ps_pbh(right.raw, left.raw);
    const auto ones = reinterpret_cast<__m512bh>(_mm512_set1_epi16(kBf16One));
    float* sums = space_.rounded_sums + state * kF32Lanes;
    _mm512_store_ps(sums, _mm512_dpbf16_ps(_mm512_load_ps(sums), rounded, ones));
    _mm512_store_si512(weights, reinterpret_cast<__m512i>(rounded));
  }

  // Row by row, so that one beyond kFarMaximum changes nothing in those beside it.
  __attribute__((noinline)) void exponentiate_far_group() const {
    for (int i = 0; i < group_rows(); ++i) {
      const int row = first_row_ + i;
      const std::int64_t state = pair_->state + row;
      float* scores = scores_ + row * kStripKeys;
      if (is_far(0.5f * space_.shifts[state])) {
        weigh_far_row(state, scores, weights_of(row, strip_));
      } else {
        exponentiate_row(state, scores, weights_of(row, strip_));
      }
    }
  }

  void weigh_far_row(std::int64_t state, const float* scores, std::uint16_t* weights) const {
    const F32Tag f32;
    const FarExponents exponents(space_.factors[state], space_.maxima[state]);
    float* sums = space_.sums + state * kF32Lanes;
    const F32Vector left = exp2_vector<Bf16Exponential>(exponents(hn::Load(f32, scores)));
    const F32Vector right = exp2_vector<Bf16Exponential>(exponents(hn::Load(f32, scores + 16)));
    hn::Store(hn::Add(hn::Load(f32, sums), hn::Add(left, right)), f32, sums);
    store_weights(state, left, right, weights);
  }

  std::uint16_t* weights_of(int row, int strip) const {
    return pair_->weights + row / AmxBf16::kRows * a_panel_elements<AmxBf16>(space_.chunk) +
           strip * AmxBf16::kRows * kStripKeys + row % AmxBf16::kRows * kStripKeys;
  }

  // Whether some row of the group needs another maximum.
  bool is_limit_passed() const {
    const float* limits = space_.limits + pair_->state + first_row_;
    const float* scores = scores_ + first_row_ * kStripKeys;
    const int count = group_rows();
    __mmask16 passed = 0;
    for (int i = 0; i < count; ++i, scores += kStripKeys) {
      const __m512 larger = _mm512_max_ps(_mm512_load_ps(scores), _mm512_load_ps(scores + 16));
      const __m512 limit = _mm512_set1_ps(limits[i]);
      passed = _kor_mask16(passed, _mm512_cmp_ps_mask(larger, limit, _CMP_GT_OQ));
    }
    return passed != 0;
  }

  __attribute__((noinline)) void prepare_group() const {
    const std::int64_t first = chunk_->first + strip_ * kStripKeys;
    for (int i = 0; i < group_rows(); ++i) {
      prepare_row(pair_->rows[first_row_ + i], first_row_ + i, first);
    }
  }

  // Modifiers; then -inf in every column that the row does not see.
  void prepare_row(const QueryRow& row, int index, std::int64_t first) const {
    float* scores = scores_ + index * kStripKeys;
    const ScoreSpan span = span_of(item_, row, first, kStripKeys);
    if (changes_scores(item_.score, row)) {
      modify_scores(item_.score, row, first, {.begin = 0, .end = kStripKeys}, scores);
    }
    if (item_.mask != nullptr && !span.is_empty()) {
      item_.mask(item_.mask_state, row, first + span.begin, span.end - span.begin,
                 space_.visible + span.begin);
      hide_masked(span, space_.visible, scores);
    }
    if (has_holes_) {
      hide_masked(span, space_.present + chunk_->column + strip_ * kStripKeys, scores);
    }
    const std::uint64_t below_end = (std::uint64_t{1} << span.end) - 1;
    const std::uint64_t below_begin = (std::uint64_t{1} << span.begin) - 1;
    const auto seen = static_cast<std::uint32_t>(below_end & ~below_begin);
    const __m512 hidden = _mm512_set1_ps(-kInfinity);
    _mm512_mask_store_ps(scores, static_cast<__mmask16>(~seen), hidden);
    _mm512_mask_store_ps(scores + 16, static_cast<__mmask16>(~seen >> 16), hidden);
  }

  // Rows of the group whose scores pass their limit get another maximum.
  __attribute__((noinline)) void raise_group() {
    alignas(64) float largest[kGroupRows];
    const int count = group_rows();
    for (int i = 0; i < kGroupRows; ++i) {
      const float* scores = scores_ + (first_row_ + (i < count ? i : 0)) * kStripKeys;
      largest[i] =
          _mm512_reduce_max_ps(_mm512_max_ps(_mm512_load_ps(scores), _mm512_load_ps(scores + 16)));
    }
    const std::int64_t state = pair_->state + first_row_;
    const auto existing = static_cast<__mmask16>((1u << count) - 1u);
    const __m512 found = _mm512_load_ps(largest);
    const __m512 factors = _mm512_loadu_ps(space_.factors + state);
    const __m512 old = _mm512_loadu_ps(space_.maxima + state);
    const __mmask16 passed = _mm512_mask_cmp_ps_mask(
        existing, found, _mm512_loadu_ps(space_.limits + state), _CMP_GT_OQ);
    const __mmask16 has_numbers =
        _mm512_mask_cmp_ps_mask(passed, old, _mm512_set1_ps(-kInfinity), _CMP_NEQ_OQ);
    // The first maximum as it is, so that a weight which outweighs the others is 1; then in whole
    // steps, so that 2^-steps is exact. Where f32 is too coarse for steps, the maximum as it is again.
    const __m512 half = _mm512_set1_ps(0.5f);
    const __m512 wanted = _mm512_mul_ps(found, _mm512_mul_ps(factors, half));
    const __m512 distance = _mm512_sub_ps(wanted, old);
    const __m512 steps = _mm512_roundscale_ps(_mm512_add_ps(distance, distance),
                                              _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
    const __m512 stepped = _mm512_fmadd_ps(steps, half, old);
    const __mmask16 is_near =
        _mm512_mask_cmp_ps_mask(has_numbers, _mm512_abs_ps(_mm512_sub_ps(stepped, wanted)),
                                _mm512_set1_ps(1.0f), _CMP_LE_OQ);
    const __m512 next = _mm512_mask_mov_ps(wanted, is_near, stepped);
    const __m512 shift = _mm512_add_ps(next, next);
    // Far from 0 there is no slack: whatever passes the score that made the maximum passes the limit.
    const __mmask16 is_far_row = _mm512_mask_cmp_ps_mask(passed, _mm512_abs_ps(next),
                                                         _mm512_set1_ps(kFarMaximum), _CMP_NLT_UQ);
    const __m512 slack = _mm512_div_ps(_mm512_add_ps(shift, _mm512_set1_ps(kSlack)), factors);
    _mm512_mask_storeu_ps(space_.maxima + state, passed, next);
    _mm512_mask_storeu_ps(space_.shifts + state, passed, shift);
    _mm512_mask_storeu_ps(space_.limits + state, passed,
                          _mm512_mask_mov_ps(slack, is_far_row, found));
    has_far_rows_ = has_far_rows_ || is_far_row != 0;
    alignas(64) float decay[kGroupRows];
    _mm512_store_ps(
        decay, _mm512_scalef_ps(_mm512_set1_ps(1.0f), _mm512_sub_ps(_mm512_setzero_ps(), steps)));
    for (int i = 0; i < count; ++i) {
      if ((has_numbers >> i & 1) != 0) rescale_row(first_row_ + i, decay[i]);
    }
  }

  // What the row has: its sum, its outputs, and its weights of this chunk's earlier strips.
  void rescale_row(int row, float decay) const {
    const std::int64_t state = pair_->state + row;
    scale_values(space_.sums + state * kF32Lanes, kF32Lanes, decay);
    scale_values(space_.rounded_sums + state * kF32Lanes, kF32Lanes, decay);
    if (*pair_->started) {
      scale_values(space_.outs + state * space_.out_stride, space_.value_columns, decay);
    }
    const __m512 factor = _mm512_set1_ps(decay);
    for (int strip = pair_->first_strip(); strip < strip_; ++strip) {
      std::uint16_t* weights = weights_of(row, strip);
      const __m512i bits = _mm512_load_si512(weights);
      const __m512i even = _mm512_slli_epi32(bits, 16);
      const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
      const __m512i odd = _mm512_and_si512(bits, upper);
      const __m512 low = _mm512_mul_ps(_mm512_castsi512_ps(even), factor);
      const __m512 high = _mm512_mul_ps(_mm512_castsi512_ps(odd), factor);
      // Exact products of bf16 numbers: their lower halves are zero, but for what underflows.
      const __m512i halves = _mm512_srli_epi32(_mm512_castps_si512(low), 16);
      _mm512_store_si512(
          weights, _mm512_or_si512(halves, _mm512_and_si512(_mm512_castps_si512(high), upper)));
    }
  }

  const AttentionItem& item_;
  const Space& space_;
  float* scores_;
  bool changes_some_ = false;
  bool has_far_rows_ = false;  // of the item, so far
  const RowPair* pair_ = nullptr;
  const KeyChunk* chunk_ = nullptr;
  int strip_ = 0;
  int first_row_ = 0;  // of the group
  bool has_holes_ = false;
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
