// SPDX-License-Identifier: Apache-2.0
// The scratch of one attention item, carved out of one block of bytes.
#pragma once

#include "cpu/attention/carver.h"
#include "cpu/attention/item.h"
#include "cpu/attention/softmax.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// Keys that are located, decoded and packed at a time: whole panels of K and whole depth steps of V
// of every engine.
inline constexpr int kSegment = 32;

template <typename Engine> struct Workspace {
  using Element = typename Engine::Element;
  static_assert(kSegment % Engine::kCols == 0 && kSegment % Engine::kDepth == 0);
  // Rows whose scores stand in the L1 cache together.
  static constexpr int kBlockRows = Engine::kRows < 32 ? 32 / Engine::kRows * Engine::kRows : 32;
  static constexpr int kPadding = 16;  // keeps rows of a power-of-two width off each other's sets

  Workspace(const AttentionShape& shape, Carver& carver)
      : chunk(static_cast<int>(shape.chunk)),
        padded_rows(round_up_to(shape.rows_per_head, Engine::kRows)),
        blocks((shape.rows_per_head + kBlockRows - 1) / kBlockRows),
        value_columns(round_up_to(shape.value_width, Engine::kCols)),
        score_stride(chunk + kPadding),
        out_stride(value_columns + kPadding) {
    const std::int64_t rows = shape.num_heads * padded_rows;
    queries =
        carver.take<Element>(rows / Engine::kRows * a_panel_elements<Engine>(shape.key_width));
    outs = carver.take<float>(rows * out_stride);
    maxima = carver.take<float>(rows + kF32Lanes);
    sums = carver.take<float>(rows * kF32Lanes);
    started = carver.take<bool>(shape.num_heads * blocks);
    const std::int64_t key_panels = shape.num_heads * (chunk / Engine::kCols);
    keys = carver.take<Element>(key_panels * b_panel_elements<Engine>(shape.key_width));
    values = carver.take<Element>(shape.num_heads * value_columns * chunk);
    weights = carver.take<Element>(kBlockRows / Engine::kRows * a_panel_elements<Engine>(chunk));
    scores = carver.take<float>(kBlockRows * score_stride);
    decoded_queries = carver.take<Element>(Engine::kRows * shape.key_width);
    present = carver.take<std::uint8_t>(chunk);
    visible = carver.take<std::uint8_t>(chunk);
  }

  int chunk;
  std::int64_t padded_rows;    // of one head
  std::int64_t blocks;         // of one head
  std::int64_t value_columns;  // value_width in whole panels
  std::int64_t score_stride;
  std::int64_t out_stride;

  Element* queries;          // A panels [heads][padded_rows / kRows]
  float* outs;               // [heads · padded_rows, out_stride], not normalised
  float* maxima;             // [heads · padded_rows]
  float* sums;               // [heads · padded_rows, lanes]
  bool* started;             // [heads · blocks]: its outs hold numbers
  Element* keys;             // B panels [heads][chunk / kCols]
  Element* values;           // B panels [heads][value_columns / kCols], one chunk deep
  Element* weights;          // A panels of one block, one chunk deep
  float* scores;             // [kBlockRows, score_stride]
  Element* decoded_queries;  // [kRows, key_width]
  std::uint8_t* present;     // [chunk]: the key exists
  std::uint8_t* visible;     // [chunk]: the row sees it
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
