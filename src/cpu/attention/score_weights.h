// SPDX-License-Identifier: Apache-2.0
// Scores of a block of query rows over a chunk of keys become weights: modifiers, masks, maxima and
// exponentials, on any engine.
#pragma once

#include "cpu/attention/workspace.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// Columns of [first, first + depth) that a row sees.
inline ScoreSpan span_of(const AttentionItem& item, const QueryRow& row, std::int64_t first,
                         int depth) {
  const std::int64_t begin = (row.begin > item.first_key ? row.begin : item.first_key) - first;
  const std::int64_t end = (row.end < item.last_key ? row.end : item.last_key) - first;
  const auto clamp = [depth](std::int64_t column) {
    return static_cast<int>(column < 0 ? 0 : column > depth ? depth : column);
  };
  return {.begin = clamp(begin), .end = clamp(end)};
}

// The rows [first_row, first_row + count) of a head, and what each sees of a chunk.
struct ScoreRows {
  static constexpr int kMost = 32;

  ScoreRows(const AttentionItem& item, std::int64_t its_head, std::int64_t its_first_row,
            int its_count, std::int64_t first_key, int depth)
      : head(its_head), first_row(its_first_row), count(its_count), hull{depth, 0} {
    const QueryRow* rows = item.rows + head * item.rows_per_head + first_row;
    for (int r = 0; r < count; ++r) {
      spans[r] = span_of(item, rows[r], first_key, depth);
      if (spans[r].is_empty()) continue;
      if (spans[r].begin < hull.begin) hull.begin = spans[r].begin;
      if (spans[r].end > hull.end) hull.end = spans[r].end;
    }
  }

  std::int64_t head;
  std::int64_t first_row;
  int count;
  ScoreSpan spans[kMost];
  ScoreSpan hull;  // columns that some row sees
};

template <typename Engine> class ScoreWeigher {
 public:
  using Space = Workspace<Engine>;

  ScoreWeigher(const AttentionItem& item, const Space& space) : item_(item), space_(space) {}

  // scores [rows.count, space.score_stride] of the chunk become weights, zeros where a row sees
  // nothing of `used`. decay [rows.count]: what the rows' earlier outputs are to be multiplied by.
  void weigh(const ScoreRows& rows, const KeyChunk& chunk, bool has_holes, ScoreSpan used,
             float* all_scores, float* decay) {
    chunk_ = &chunk;
    has_holes_ = has_holes;
    const auto scores = [&](int r) { return all_scores + r * space_.score_stride; };
    alignas(64) float found[ScoreRows::kMost + kF32Lanes];
    alignas(64) float shift[ScoreRows::kMost + kF32Lanes];
    alignas(64) float factors[ScoreRows::kMost + kF32Lanes];
    for (int r = 0; r < round_up_to_lanes(rows.count); ++r) {
      found[r] = -kInfinity;
      factors[r] = 1.0f;
    }
    for (int r = 0; r < rows.count; ++r) {
      if (rows.spans[r].is_empty()) continue;
      const std::int64_t row = rows.head * item_.rows_per_head + rows.first_row + r;
      factors[r] = prepare_scores(item_.rows[row], rows.spans[r], scores(r));
      found[r] = row_maximum(rows.spans[r], scores(r));
    }
    const std::int64_t state = space_.state(rows.head, rows.first_row);
    advance_maxima(found, factors, rows.count, space_.maxima + state, decay, shift);
    for (int r = 0; r < rows.count; ++r) {
      if (rows.spans[r].is_empty()) {
        fill_zero(scores(r), used.begin, used.end);
        continue;
      }
      weigh_span<typename ExponentialFor<typename Engine::Element>::Type>(
          rows.spans[r], used, factors[r], shift[r], decay[r], scores(r),
          space_.sums + (state + r) * kF32Lanes);
    }
  }

 private:
  // Modifiers and masks; returns the factor that is left for the exponent of 2.
  float prepare_scores(const QueryRow& row, ScoreSpan span, float* scores) const {
    if (changes_scores(item_.score, row)) {
      modify_scores(item_.score, row, chunk_->first, span, scores);
    }
    if (item_.mask != nullptr) {
      item_.mask(item_.mask_state, row, chunk_->first + span.begin, span.end - span.begin,
                 space_.visible + span.begin);
      hide_masked(span, space_.visible, scores);
    }
    if (has_holes_) hide_masked(span, space_.present + chunk_->column, scores);
    hide_edges(span, scores);
    return exponent_factor(item_.score, row);
  }

  const AttentionItem& item_;
  const Space& space_;
  const KeyChunk* chunk_ = nullptr;
  bool has_holes_ = false;
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
