// SPDX-License-Identifier: Apache-2.0
// What becomes of query rows and a packed chunk of keys on AMX. Scores are made 32 rows × 32 keys at
// a time and turned into weights at once, straight into the A panels of the product with V: they
// never leave the L1 cache, and no f32 weight is ever stored.
//
// A strip cannot wait for the maximum of its chunk. Its weights are relative to a number that the
// row's scores have not passed by more than kSlack: usually the maximum of the row's first strip.
// Where a score does pass it, the row moves up in whole steps, and everything it has so far is
// multiplied by a power of two, which is exact. No other row can tell.
#pragma once

#include "cpu/attention/score_blocks.h"
#include "cpu/attention/strip_weights_amx.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

class ScoreStrips {
 public:
  using Space = Workspace<AmxBf16>;

  ScoreStrips(const AttentionItem& item, const Space& space)
      : item_(item),
        space_(space),
        query_panel_(a_panel_elements<AmxBf16>(item.key_width)),
        key_panel_(b_panel_elements<AmxBf16>(item.key_width)),
        weigher_(item, space) {}

  void begin() { weigher_.begin(); }

  // Two pairs at a time share every panel of K while it is in the L1 cache.
  void attend(std::int64_t head, const PackedKeys& packed) {
    packed_ = packed;
    for (std::int64_t row = 0; row < item_.rows_per_head; row += kPairs * RowPair::kRows) {
      for (int column = 0; column < packed.depth; column += space_.chunk) {
        attend_chunk(head, row, chunk_at(packed, column, space_.chunk));
      }
    }
  }

 private:
  static constexpr int kPairs = Space::kBlocksAtOnce;

  void attend_chunk(std::int64_t head, std::int64_t first_row, const KeyChunk& chunk) {
    RowPair pairs[kPairs];
    int count = 0;
    ScoreSpan strips{.begin = chunk.depth, .end = 0};
    for (int p = 0; p < kPairs; ++p) {
      const std::int64_t row = first_row + p * RowPair::kRows;
      if (row >= item_.rows_per_head) break;
      RowPair& pair = pairs[count];
      pair = row_pair_at(item_, space_, head, row, chunk);
      pair.weights = space_.weights + count * 2 * a_panel_elements<AmxBf16>(space_.chunk);
      if (pair.hull.is_empty()) continue;
      if (pair.first_strip() < strips.begin) strips.begin = pair.first_strip();
      if (pair.last_strip() > strips.end) strips.end = pair.last_strip();
      ++count;
    }
    for (int strip = strips.begin; strip < strips.end; ++strip) {
      for (int p = 0; p < count; ++p) {
        const bool is_seen = strip >= pairs[p].first_strip() && strip < pairs[p].last_strip();
        if (is_seen) weigh_strip(head, chunk, pairs[p], strip);
      }
    }
    for (int p = 0; p < count; ++p) add_values(head, chunk, pairs[p]);
  }

  void weigh_strip(std::int64_t head, const KeyChunk& chunk, const RowPair& pair, int strip) {
    const std::int64_t column = chunk.column + strip * kStripKeys;
    AmxBf16::multiply(space_.queries + pair.state / AmxBf16::kRows * query_panel_, pair.panels(),
                      space_.key_panels(head) + column / AmxBf16::kCols * key_panel_,
                      kStripKeys / AmxBf16::kCols, item_.key_width, space_.scores, kStripKeys,
                      Accumulate::overwrite);
    weigher_.weigh(pair, chunk, strip, packed_.has_holes);
  }

  // O += P · V
  void add_values(std::int64_t head, const KeyChunk& chunk, const RowPair& pair) const {
    const std::int64_t first = std::int64_t{pair.first_strip()} * kStripKeys;
    const std::int64_t last = std::int64_t{pair.last_strip()} * kStripKeys;
    AmxBf16::multiply(pair.weights + first * AmxBf16::kRows, pair.panels(),
                      space_.value_panels(head) + (chunk.column + first) * AmxBf16::kCols,
                      static_cast<int>(space_.value_columns / AmxBf16::kCols), last - first,
                      space_.outs + pair.state * space_.out_stride, space_.out_stride,
                      *pair.started ? Accumulate::add : Accumulate::overwrite,
                      {.a = a_panel_elements<AmxBf16>(space_.chunk),
                       .b = std::int64_t{packed_.depth} * AmxBf16::kCols});
    *pair.started = true;
  }

  const AttentionItem& item_;
  const Space& space_;
  std::int64_t query_panel_;  // elements
  std::int64_t key_panel_;
  StripWeigher weigher_;
  PackedKeys packed_{};
};

template <> struct BlocksOf<AmxBf16> { using Type = ScoreStrips; };

}  // namespace quire::cpu::QUIRE_CPU_TARGET
