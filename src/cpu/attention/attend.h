// SPDX-License-Identifier: Apache-2.0
// Attention of one item on an engine:
//   pack K and V of some keys → per block of rows, chunk of keys by chunk of keys:
//   S = Q·Kᵀ, softmax, O = decay·O + P·V
// Packing is where pages, formats and missing keys end: the tiles see dense panels, zeros where
// there is no key. What happens to a block of rows is the business of the engine's Blocks.
#pragma once

#include "cpu/attention/item_states.h"
#include "cpu/attention/row_decode.h"
#include "cpu/attention/score_blocks.h"
#include "cpu/attention/workspace.h"
#if defined(__AMX_BF16__)
#include "cpu/attention/score_strips_amx.h"
#endif

namespace quire::cpu::QUIRE_CPU_TARGET {

// Rows brings the rows of up to kSegment keys as elements of the engine:
//   void load(head, first_key, count, const Element** keys, const Element** values);
// null in `keys` where there is no key. It may use its memory again at the next call.
template <typename Engine, typename Rows> class Attention {
 public:
  using Element = typename Engine::Element;
  using Space = Workspace<Engine>;
  using Blocks = typename BlocksOf<Engine>::Type;

  Attention(const AttentionItem& item, const Space& space, Rows& rows)
      : item_(item),
        space_(space),
        rows_(rows),
        blocks_(item, space),
        query_panel_(a_panel_elements<Engine>(item.key_width)),
        key_panel_(b_panel_elements<Engine>(item.key_width)) {}

  void run() {
    const typename Engine::Session session;
    begin();
    const std::int64_t step = space_.packed;
    for (std::int64_t key = item_.first_key / step * step; key < item_.last_key; key += step) {
      load_keys(key);
      for (std::int64_t head = 0; head < item_.num_heads; ++head) blocks_.attend(head, packed_);
    }
    end_rows(item_, space_);
  }

 private:
  void begin() {
    for (std::int64_t head = 0; head < item_.num_heads; ++head) {
      for (std::int64_t row = 0; row < item_.rows_per_head; row += Engine::kRows) {
        pack_queries(head, row);
      }
    }
    clear_states(item_, space_);
    blocks_.begin();
  }

  void pack_queries(std::int64_t head, std::int64_t row) {
    const Element* rows[Engine::kRows];
    const std::int64_t left = item_.rows_per_head - row;
    const int count = static_cast<int>(left < Engine::kRows ? left : Engine::kRows);
    for (int i = 0; i < count; ++i) {
      rows[i] = as_elements(item_.q_dtype, item_.rows[head * item_.rows_per_head + row + i].q,
                            item_.key_width, space_.decoded_queries + i * item_.key_width);
    }
    Engine::pack_a(rows, count, item_.key_width,
                   space_.queries + space_.state(head, row) / Engine::kRows * query_panel_);
  }

  // Walks the pages token by token, all heads of a few tokens before the next ones: rows of the
  // heads of a token lie side by side, and memory is read in its order.
  void load_keys(std::int64_t first) {
    const std::int64_t left = item_.last_key - first;
    const std::int64_t depth = round_up_to(left < space_.packed ? left : space_.packed, kSegment);
    packed_ = {.first = first, .depth = static_cast<int>(depth), .has_holes = false};
    for (int segment = 0; segment < packed_.depth; segment += kSegment) {
      for (std::int64_t head = 0; head < item_.num_heads; ++head) {
        load_segment(head, segment);
      }
    }
  }

  void load_segment(std::int64_t head, int segment) {
    const std::int64_t first = packed_.first + segment;
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
      packed_.has_holes = packed_.has_holes || keys[i] == nullptr;
    }
    pack_keys(keys, space_.key_panels(head) + segment / Engine::kCols * key_panel_);
    pack_values(values, space_.value_panels(head) + segment * Engine::kCols);
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
      panel += Engine::kCols * packed_.depth;
      for (int i = 0; i < kSegment; ++i) {
        if (rows[i] != nullptr) rows[i] += Engine::kCols;
      }
    }
  }

  const AttentionItem& item_;
  const Space& space_;
  Rows& rows_;
  Blocks blocks_;
  std::int64_t query_panel_;  // elements
  std::int64_t key_panel_;
  PackedKeys packed_{};
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
