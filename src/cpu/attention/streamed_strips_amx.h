// SPDX-License-Identifier: Apache-2.0
// Up to 16 query rows per KV head on AMX, nothing transposed but scores: K rows are the left
// operand, Sᵀ = K · Qᵀ, and of V only neighbouring rows are interleaved. Rows come in the order of
// cpu/attention/key_streams.h; weights are made as in cpu/attention/score_strips_amx.h.
#pragma once

#include "cpu/attention/item_states.h"
#include "cpu/attention/stream_layout_amx.h"
#include "cpu/attention/stream_space_amx.h"
#include "cpu/attention/strip_weights_amx.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

class StreamedStrips {
 public:
  StreamedStrips(const AttentionItem& item, StreamSpace& space)
      : item_(item), space_(space), weigher_(item, space.rows) {}

  void run() {
    const int rows = static_cast<int>(item_.rows_per_head);
    const int columns = space_.columns * 4;
    // 0, 1: Sᵀ; 2: Q; 3, 6: K or V; 4: P; 5, 7: O
    const AmxSession session({{16, columns},
                              {16, columns},
                              {16, columns},
                              {16, 64},
                              {rows, 64},
                              {rows, 64},
                              {16, 64},
                              {rows, 64}});
    begin();
    std::int64_t first = item_.first_key / kStreamChunk * kStreamChunk;
    for (; first < item_.last_key; first += kStreamChunk) attend_chunk(first);
    end();
  }

 private:
  static constexpr int kBlock = kStreamBlock;
  static constexpr int kDepth = AmxBf16::kDepth;
  static constexpr int kParts = kBlock / kDepth;

  // One K or V row of each stream, some of its columns.
  struct Unit {
    std::int64_t head;
    int step;
    std::int64_t column;
    std::int64_t count;  // of columns
  };

  void begin() {
    space_.streams.begin(
        item_, {.e4m3 = item_.key_width % kCodeBlock == 0 && item_.value_width % kCodeBlock == 0});
    clear_states(item_, space_.rows);
    weigher_.begin();
    for (std::int64_t head = 0; head < item_.num_heads; ++head) {
      pack_queries(head);
      float* outs = out_rows(head);
      for (std::int64_t i = 0; i < item_.rows_per_head * space_.rows.out_stride; ++i) outs[i] = 0;
    }
  }

  void pack_queries(std::int64_t head) {
    const std::uint16_t* rows[StreamSpace::kRows];
    for (std::int64_t i = 0; i < item_.rows_per_head; ++i) {
      rows[i] = as_elements(item_.q_dtype, item_.rows[head * item_.rows_per_head + i].q,
                            item_.key_width, space_.rows.decoded_queries + i * item_.key_width);
    }
    pack_columns(rows, static_cast<int>(item_.rows_per_head), item_.key_width, space_.columns,
                 queries(head));
  }

  void attend_chunk(std::int64_t first) {
    const KeyChunk chunk{.first = first, .column = 0, .depth = kStreamChunk};
    // Heads differ in no mask: if this one sees nothing, none does.
    if (row_pair_at(item_, space_.rows, 0, 0, chunk).hull.is_empty()) return;
    space_.streams.locate(first);
    for_each_unit(
        item_.key_width,
        [this](const Unit& unit, int part, auto* panel) { pack_keys(unit, part, panel); },
        [this](const Unit& unit, int part, const auto* panel) {
          multiply_keys(unit, part, panel);
        });
    for (std::int64_t head = 0; head < item_.num_heads; ++head) weigh_head(head, chunk);
    for_each_unit(
        item_.value_width,
        [this](const Unit& unit, int part, auto* panel) { pack_values(unit, part, panel); },
        [this](const Unit& unit, int part, const auto* panel) {
          multiply_values(unit, part, panel);
        });
  }

  // Packs a unit, a few rows at a time, between the products of the one before it: a core then has
  // both in its window, and tiles are not loaded from stores that are still on their way.
  template <typename Pack, typename Multiply>
  void for_each_unit(std::int64_t width, Pack&& pack, Multiply&& multiply) {
    Unit last{.head = -1, .step = 0, .column = 0, .count = 0};
    int side = 0;
    for (int step = 0; step < kStreamSteps; ++step) {
      for (std::int64_t head = 0; head < item_.num_heads; ++head) {
        for (std::int64_t column = 0; column < width; column += kBlock, side ^= 1) {
          const std::int64_t left = width - column;
          const Unit unit{
              .head = head, .step = step, .column = column, .count = left < kBlock ? left : kBlock};
          for (int part = 0; part < kParts; ++part) {
            pack(unit, part, space_.panels[side]);
            if (part * kDepth < last.count) multiply(last, part, space_.panels[side ^ 1]);
          }
          last = unit;
        }
      }
    }
    for (int part = 0; part * kDepth < last.count; ++part) {
      multiply(last, part, space_.panels[side ^ 1]);
    }
  }

  // panel [kStreams, kBlock]
  void pack_keys(const Unit& unit, int part, std::uint16_t* panel) {
    if (unit.column == 0 && part == 0) {
      unit_rows_ = space_.streams.key_rows(unit.head, unit.step);
    }
    const auto pack = unit_rows_.dtype == DType::fp8_e4m3 ? widen_rows : copy_rows;
    pack(unit_rows_, part * kPartRows, unit.column, unit.count, panel);
  }

  void multiply_keys(const Unit& unit, int part, const std::uint16_t* panel) const {
    if (unit.column == 0 && part == 0) {
      tile_zero<0>();
      tile_zero<1>();
    }
    const std::int64_t k = unit.column + part * kDepth;
    tile_load<2>(queries(unit.head) + k * space_.columns, std::int64_t{4} * space_.columns);
    tile_load<3>(panel + part * kDepth, 2 * kBlock);
    tile_multiply_bf16<0, 3, 2>();
    tile_load<6>(panel + 16 * kBlock + part * kDepth, 2 * kBlock);
    tile_multiply_bf16<1, 6, 2>();
    if (k + kDepth < item_.key_width) return;
    // Row s of the tiles is key kStreamSteps · s + step.
    float* scores = scores_of(unit.head) + unit.step * space_.columns;
    const std::int64_t stride = std::int64_t{kStreamSteps} * space_.columns;
    tile_store<0>(scores, 4 * stride);
    tile_store<1>(scores + 16 * stride, 4 * stride);
  }

  void weigh_head(std::int64_t head, const KeyChunk& chunk) {
    space_.streams.prefetch_values(head);
    RowPair pair = row_pair_at(item_, space_.rows, head, 0, chunk);
    pair.weights = space_.rows.weights;
    for (int strip = 0; strip < kStreamChunk / kStripKeys; ++strip) {
      if (strip < pair.first_strip() || strip >= pair.last_strip()) {
        std::uint16_t* weights = pair.weights + strip * AmxBf16::kRows * kStripKeys;
        for (int i = 0; i < pair.count * kStripKeys; ++i) weights[i] = 0;
        continue;
      }
      transpose_scores(scores_of(head) + strip * kStripKeys * space_.columns, space_.columns,
                       pair.count, space_.rows.scores);
      weigher_.weigh(pair, chunk, strip, space_.streams.has_holes());
    }
    *pair.started = true;
    for (int r = 0; r < pair.count; ++r) {
      spread_weights(pair.weights + r * kStripKeys, AmxBf16::kRows * kStripKeys,
                     weights_of(head, 0) + r * kStreams, item_.rows_per_head * kStreams);
    }
  }

  // panel: B tiles of 16 columns, in the order of store_interleaved.
  void pack_values(const Unit& unit, int part, std::uint16_t* panel) {
    if (unit.column == 0 && part == 0) {
      unit_rows_ = space_.streams.value_rows(unit.head, unit.step);
    }
    const auto pack = unit_rows_.dtype == DType::fp8_e4m3 ? pair_widened : pair_rows;
    pack(unit_rows_, part * kPartRows, unit.column, unit.count, panel);
  }

  void multiply_values(const Unit& unit, int part, const std::uint16_t* panel) const {
    const std::int64_t stride = 4 * space_.rows.out_stride;
    float* out = out_rows(unit.head) + unit.column + part * kDepth;
    panel += 2 * kTile * part;
    if (part == 0) tile_load<4>(weights_of(unit.head, unit.step), 64);
    tile_load<5>(out, stride);
    tile_load<3>(panel, 64);
    tile_multiply_bf16<5, 4, 3>();
    tile_load<7>(out + 16, stride);
    tile_load<6>(panel + kTile, 64);
    tile_multiply_bf16<7, 4, 6>();
    tile_store<5>(out, stride);
    tile_store<7>(out + 16, stride);
  }

  void end() {
    for (std::int64_t head = 0; head < item_.num_heads; ++head) {
      for (std::int64_t row = 0; row < item_.rows_per_head; ++row) {
        restore_columns(out_rows(head) + row * space_.rows.out_stride, item_.value_width);
      }
    }
    end_rows(item_, space_.rows);
  }

  static constexpr int kTile = 16 * 32;  // elements

  std::uint16_t* queries(std::int64_t head) const {
    return space_.rows.queries + head * a_panel_elements<AmxBf16>(item_.key_width);
  }
  float* out_rows(std::int64_t head) const {
    return space_.rows.outs + space_.rows.state(head, 0) * space_.rows.out_stride;
  }
  float* scores_of(std::int64_t head) const {
    return space_.scores + head * kStreamChunk * space_.columns;
  }
  std::uint16_t* weights_of(std::int64_t head, int step) const {
    return space_.weights + (head * kStreamSteps + step) * item_.rows_per_head * kStreams;
  }

  const AttentionItem& item_;
  StreamSpace& space_;
  StripWeigher weigher_;
  StreamRows unit_rows_{};
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
