// SPDX-License-Identifier: Apache-2.0
// What becomes of a block of query rows and a packed chunk of keys, on any engine: all scores of
// the block, their maxima, their weights, and one product with V.
#pragma once

#include "cpu/attention/finish_row.h"
#include "cpu/attention/score_weights.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

template <typename Engine> class ScoreBlocks {
 public:
  using Element = typename Engine::Element;
  using Space = Workspace<Engine>;
  static constexpr int kBlockRows = Space::kBlockRows;

  ScoreBlocks(const AttentionItem& item, const Space& space)
      : item_(item),
        space_(space),
        query_panel_(a_panel_elements<Engine>(item.key_width)),
        key_panel_(b_panel_elements<Engine>(item.key_width)),
        weigher_(item, space) {}

  void begin() {}

  void attend(std::int64_t head, const PackedKeys& packed) {
    packed_ = packed;
    for (std::int64_t row = 0; row < item_.rows_per_head; row += kBlockRows) {
      for (int column = 0; column < packed.depth; column += space_.chunk) {
        chunk_ = chunk_at(packed, column, space_.chunk);
        attend_block(head, row);
      }
    }
  }

 private:
  static constexpr int part_keys() {
    if constexpr (requires { Engine::kSummed; }) {
      static_assert(Engine::kSummed % kSegment == 0);
      return Engine::kSummed;
    } else {
      return kSegment;
    }
  }

  void attend_block(std::int64_t head, std::int64_t first_row) {
    const std::int64_t left = item_.rows_per_head - first_row;
    const int count = static_cast<int>(left < kBlockRows ? left : kBlockRows);
    const ScoreRows rows(item_, head, first_row, count, chunk_.first, space_.chunk);
    const ScoreSpan& hull = rows.hull;
    if (hull.is_empty()) return;
    const std::int64_t first_state = space_.state(head, first_row);
    const int panels = (count + Engine::kRows - 1) / Engine::kRows;
    const int first_panel = hull.begin / Engine::kCols;
    const int last_panel = (hull.end + Engine::kCols - 1) / Engine::kCols;
    const std::int64_t key_panel = first_panel + chunk_.column / Engine::kCols;
    Engine::multiply(space_.queries + first_state / Engine::kRows * query_panel_, panels,
                     space_.key_panels(head) + key_panel * key_panel_, last_panel - first_panel,
                     item_.key_width, space_.scores + first_panel * Engine::kCols,
                     space_.score_stride, Accumulate::overwrite);
    alignas(64) float decay[kBlockRows + kF32Lanes];
    // Weights exist for the segments of the hull alone: half a chunk on average under the diagonal. They
    // begin with a part of the product's sums, where those of a row begin whatever the rows beside it see.
    const ScoreSpan used{.begin = hull.begin / part_keys() * part_keys(),
                         .end = static_cast<int>(round_up_to(hull.end, kSegment))};
    weigher_.weigh(rows, chunk_, packed_.has_holes, used, space_.scores, decay);
    accumulate(head, first_row, count, used, decay);
  }

  // O = decay · O + P · V
  void accumulate(std::int64_t head, std::int64_t first_row, int count, ScoreSpan used,
                  const float* decay) {
    const int panels = (count + Engine::kRows - 1) / Engine::kRows;
    const std::int64_t depth = used.end - used.begin;
    for (int p = 0; p < panels; ++p) {
      const int left = count - p * Engine::kRows;
      Engine::pack_a_f32(space_.scores + p * Engine::kRows * space_.score_stride + used.begin,
                         space_.score_stride, left < Engine::kRows ? left : Engine::kRows, depth,
                         space_.weights + p * a_panel_elements<Engine>(depth));
    }
    float* out = space_.outs + space_.state(head, first_row) * space_.out_stride;
    bool& is_started = space_.has_started(head, first_row);
    for (int r = 0; r < count && is_started; ++r) {
      if (decay[r] != 1.0f) {
        scale_values(out + r * space_.out_stride, space_.value_columns, decay[r]);
      }
    }
    Engine::multiply(space_.weights, panels,
                     space_.value_panels(head) + (chunk_.column + used.begin) * Engine::kCols,
                     static_cast<int>(space_.value_columns / Engine::kCols), depth, out,
                     space_.out_stride, is_started ? Accumulate::add : Accumulate::overwrite,
                     {.a = 0, .b = std::int64_t{packed_.depth} * Engine::kCols});
    is_started = true;
  }

  const AttentionItem& item_;
  const Space& space_;
  std::int64_t query_panel_;  // elements
  std::int64_t key_panel_;
  ScoreWeigher<Engine> weigher_;
  PackedKeys packed_{};
  KeyChunk chunk_{};
};

// The engine's own way with blocks, where it has one.
template <typename Engine> struct BlocksOf { using Type = ScoreBlocks<Engine>; };

}  // namespace quire::cpu::QUIRE_CPU_TARGET
