// SPDX-License-Identifier: Apache-2.0
// Attention of one item on an engine, chunk of keys by chunk of keys:
//   pack K and V of the chunk → per block of rows: S = Q·Kᵀ, softmax, O = decay·O + P·V
// Packing is where pages, formats and missing keys end: the tiles see dense panels, zeros where
// there is no key.
#pragma once

#include "cpu/attention/finish_row.h"
#include "cpu/attention/row_decode.h"
#include "cpu/attention/workspace.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// Rows brings the rows of up to kSegment keys as elements of the engine:
//   void load(head, first_key, count, const Element** keys, const Element** values);
// null in `keys` where there is no key. It may use its memory again at the next call.
template <typename Engine, typename Rows> class Attention {
 public:
  using Element = typename Engine::Element;
  using Space = Workspace<Engine>;
  static constexpr int kBlockRows = Space::kBlockRows;

  Attention(const AttentionItem& item, const Space& space, Rows& rows)
      : item_(item),
        space_(space),
        rows_(rows),
        query_panel_(a_panel_elements<Engine>(item.key_width)),
        key_panel_(b_panel_elements<Engine>(item.key_width)) {}

  void run() {
    const typename Engine::Session session;
    begin();
    const std::int64_t chunk = space_.chunk;
    for (std::int64_t key = item_.first_key / chunk * chunk; key < item_.last_key; key += chunk) {
      load_chunk(key);
      for (std::int64_t head = 0; head < item_.num_heads; ++head) {
        for (std::int64_t row = 0; row < item_.rows_per_head; row += kBlockRows) {
          attend_block(head, row);
        }
      }
    }
    end();
  }

 private:
  const QueryRow& query(std::int64_t head, std::int64_t row) const {
    return item_.rows[head * item_.rows_per_head + row];
  }
  std::int64_t state(std::int64_t head, std::int64_t row) const {
    return head * space_.padded_rows + row;
  }
  bool& started(std::int64_t head, std::int64_t row) {
    return space_.started[head * space_.blocks + row / kBlockRows];
  }
  int rows_from(std::int64_t row, int limit) const {
    const std::int64_t left = item_.rows_per_head - row;
    return static_cast<int>(left < limit ? left : limit);
  }

  void begin() {
    for (std::int64_t head = 0; head < item_.num_heads; ++head) {
      for (std::int64_t row = 0; row < item_.rows_per_head; row += Engine::kRows) {
        pack_queries(head, row);
      }
    }
    const std::int64_t rows = item_.num_heads * space_.padded_rows;
    for (std::int64_t i = 0; i < rows + kF32Lanes; ++i) space_.maxima[i] = -kInfinity;
    for (std::int64_t i = 0; i < rows * kF32Lanes; ++i) space_.sums[i] = 0.0f;
    for (std::int64_t i = 0; i < item_.num_heads * space_.blocks; ++i) space_.started[i] = false;
  }

  void pack_queries(std::int64_t head, std::int64_t row) {
    const Element* rows[Engine::kRows];
    const int count = rows_from(row, Engine::kRows);
    for (int i = 0; i < count; ++i) {
      rows[i] = as_elements(item_.q_dtype, query(head, row + i).q, item_.key_width,
                            space_.decoded_queries + i * item_.key_width);
    }
    Engine::pack_a(rows, count, item_.key_width,
                   space_.queries + state(head, row) / Engine::kRows * query_panel_);
  }

  // Walks the pages token by token, all heads of a few tokens before the next ones: rows of the
  // heads of a token lie side by side, and memory is read in its order.
  void load_chunk(std::int64_t first) {
    chunk_first_ = first;
    const std::int64_t left = item_.last_key - first;
    depth_ = static_cast<int>(round_up_to(left < space_.chunk ? left : space_.chunk, kSegment));
    has_holes_ = false;
    for (int segment = 0; segment < depth_; segment += kSegment) {
      for (std::int64_t head = 0; head < item_.num_heads; ++head) load_segment(head, segment);
    }
  }

  void load_segment(std::int64_t head, int segment) {
    const std::int64_t first = chunk_first_ + segment;
    const int begin = static_cast<int>(first < item_.first_key ? item_.first_key - first : 0);
    const std::int64_t left = item_.last_key - first;
    const int end = static_cast<int>(left < kSegment ? left : kSegment);
    const Element* keys[kSegment] = {};
    const Element* values[kSegment] = {};
    if (begin < end) {
      rows_.load(item_.first_head + head, first + begin, end - begin, keys + begin, values + begin);
    }
    for (int i = begin; i < end; ++i) {
      space_.present[segment + i] = keys[i] != nullptr;
      has_holes_ = has_holes_ || keys[i] == nullptr;
    }
    pack_keys(keys, key_panels(head) + segment / Engine::kCols * key_panel_);
    pack_values(values, value_panels(head) + segment * Engine::kCols);
  }

  Element* key_panels(std::int64_t head) const {
    return space_.keys + head * (space_.chunk / Engine::kCols) * key_panel_;
  }
  Element* value_panels(std::int64_t head) const {
    return space_.values + head * space_.value_columns * space_.chunk;
  }

  void pack_keys(const Element* const* rows, Element* panel) const {
    for (int key = 0; key < kSegment; key += Engine::kCols, panel += key_panel_) {
      Engine::pack_b_columns(rows + key, Engine::kCols, item_.key_width, panel);
    }
  }

  // kSegment rows of every panel; rows is used up.
  void pack_values(const Element** rows, Element* panel) const {
    for (std::int64_t column = 0; column < item_.value_width; column += Engine::kCols) {
      const std::int64_t left = item_.value_width - column;
      Engine::pack_b_rows(rows, kSegment,
                          static_cast<int>(left < Engine::kCols ? left : Engine::kCols), panel);
      panel += Engine::kCols * depth_;
      for (int i = 0; i < kSegment; ++i) {
        if (rows[i] != nullptr) rows[i] += Engine::kCols;
      }
    }
  }

  ScoreSpan span_of(const QueryRow& row) const {
    const std::int64_t begin = row.begin > item_.first_key ? row.begin : item_.first_key;
    const std::int64_t end = row.end < item_.last_key ? row.end : item_.last_key;
    const std::int64_t from = begin - chunk_first_;
    const std::int64_t to = end - chunk_first_;
    return {.begin = static_cast<int>(from < 0              ? 0
                                      : from > space_.chunk ? space_.chunk
                                                            : from),
            .end = static_cast<int>(to < 0              ? 0
                                    : to > space_.chunk ? space_.chunk
                                                        : to)};
  }

  void attend_block(std::int64_t head, std::int64_t first_row) {
    const int count = rows_from(first_row, kBlockRows);
    ScoreSpan spans[kBlockRows];
    ScoreSpan hull{.begin = space_.chunk, .end = 0};
    for (int r = 0; r < count; ++r) {
      spans[r] = span_of(query(head, first_row + r));
      if (spans[r].is_empty()) continue;
      if (spans[r].begin < hull.begin) hull.begin = spans[r].begin;
      if (spans[r].end > hull.end) hull.end = spans[r].end;
    }
    if (hull.is_empty()) return;
    const std::int64_t first_state = state(head, first_row);
    const int panels = (count + Engine::kRows - 1) / Engine::kRows;
    const int first_panel = hull.begin / Engine::kCols;
    const int last_panel = (hull.end + Engine::kCols - 1) / Engine::kCols;
    Engine::multiply(space_.queries + first_state / Engine::kRows * query_panel_, panels,
                     key_panels(head) + first_panel * key_panel_, last_panel - first_panel,
                     item_.key_width, space_.scores + first_panel * Engine::kCols,
                     space_.score_stride, Accumulate::overwrite);
    alignas(64) float decay[kBlockRows + kF32Lanes];
    weigh(head, first_row, count, spans, decay);
    accumulate(head, first_row, count, decay);
  }

  // Scores to weights, for the rows of a block.
  void weigh(std::int64_t head, std::int64_t first_row, int count, const ScoreSpan* spans,
             float* decay) {
    alignas(64) float found[kBlockRows + kF32Lanes];
    alignas(64) float shift[kBlockRows + kF32Lanes];
    float factors[kBlockRows];
    for (int r = 0; r < kBlockRows + kF32Lanes; ++r) found[r] = -kInfinity;
    for (int r = 0; r < count; ++r) {
      if (spans[r].is_empty()) continue;
      factors[r] = prepare_scores(query(head, first_row + r), spans[r], scores(r));
      found[r] = row_maximum(spans[r], scores(r)) * factors[r];
    }
    const std::int64_t first_state = state(head, first_row);
    advance_maxima(found, count, space_.maxima + first_state, decay, shift);
    for (int r = 0; r < count; ++r) {
      if (spans[r].is_empty()) {
        fill_zero(scores(r), 0, depth_);
        continue;
      }
      exponentiate<typename ExponentialFor<Element>::Type>(
          spans[r], depth_, factors[r], shift[r], decay[r], scores(r),
          space_.sums + (first_state + r) * kF32Lanes);
    }
  }

  float* scores(int row) const { return space_.scores + row * space_.score_stride; }

  // Modifiers and masks; returns the factor that is left for the exponent.
  float prepare_scores(const QueryRow& row, ScoreSpan span, float* scores) {
    float factor = item_.score.scale * kLog2E;
    if (changes_scores(item_.score, row)) {
      modify_scores(item_.score, row, chunk_first_, span, scores);
      factor = kLog2E;
    }
    if (item_.mask != nullptr) {
      item_.mask(item_.mask_state, row, chunk_first_ + span.begin, span.end - span.begin,
                 space_.visible + span.begin);
      hide_masked(span, space_.visible, scores);
    }
    if (has_holes_) hide_masked(span, space_.present, scores);
    hide_edges(span, scores);
    return factor;
  }

  // O = decay · O + P · V
  void accumulate(std::int64_t head, std::int64_t first_row, int count, const float* decay) {
    const int panels = (count + Engine::kRows - 1) / Engine::kRows;
    const std::int64_t weight_panel = a_panel_elements<Engine>(depth_);
    for (int p = 0; p < panels; ++p) {
      const int left = count - p * Engine::kRows;
      Engine::pack_a_f32(scores(p * Engine::kRows), space_.score_stride,
                         left < Engine::kRows ? left : Engine::kRows, depth_,
                         space_.weights + p * weight_panel);
    }
    float* out = space_.outs + state(head, first_row) * space_.out_stride;
    bool& is_started = started(head, first_row);
    for (int r = 0; r < count && is_started; ++r) {
      if (decay[r] != 1.0f) {
        scale_values(out + r * space_.out_stride, space_.value_columns, decay[r]);
      }
    }
    Engine::multiply(space_.weights, panels, value_panels(head),
                     static_cast<int>(space_.value_columns / Engine::kCols), depth_, out,
                     space_.out_stride, is_started ? Accumulate::add : Accumulate::overwrite);
    is_started = true;
  }

  void end() {
    for (std::int64_t head = 0; head < item_.num_heads; ++head) {
      for (std::int64_t row = 0; row < item_.rows_per_head; ++row) end_row(head, row);
    }
  }

  void end_row(std::int64_t head, std::int64_t row) {
    const std::int64_t from = state(head, row);
    const F32Tag f32;
    const F32Vector sums = hn::LoadU(f32, space_.sums + from * kF32Lanes);
    const float sum = hn::GetLane(hn::SumOfLanes(f32, sums));
    float* out = started(head, row) ? space_.outs + from * space_.out_stride : nullptr;
    if (item_.states.out == nullptr) {
      finish_row(query(head, row), out, space_.maxima[from], sum, item_.value_width,
                 item_.out_dtype);
      return;
    }
    const std::int64_t to = head * item_.rows_per_head + row;
    item_.states.maximum[to] = space_.maxima[from];
    item_.states.sum[to] = sum;
    if (out != nullptr) {
      __builtin_memcpy(item_.states.out + to * item_.value_width, out,
                       static_cast<std::size_t>(item_.value_width) * sizeof(float));
    }
  }

  const AttentionItem& item_;
  const Space& space_;
  Rows& rows_;
  std::int64_t query_panel_;  // elements
  std::int64_t key_panel_;
  std::int64_t chunk_first_ = 0;
  int depth_ = 0;  // keys of the chunk, padded
  bool has_holes_ = false;
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
