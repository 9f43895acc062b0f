// SPDX-License-Identifier: Apache-2.0
// The scratch of one attention item, carved out of one block of bytes.
#pragma once

#include "cpu/attention/item.h"
#include "cpu/attention/softmax.h"
#include "cpu/simd/carver.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// Keys that are located, decoded and packed at a time: whole panels of K and whole depth steps of V
// of every engine.
inline constexpr int kSegment = 32;

// The keys whose K and V are packed.
struct PackedKeys {
  std::int64_t first;
  int depth;       // keys, in whole segments
  bool has_holes;  // some of them do not exist
};

// Some of them, whose scores are weighed together.
struct KeyChunk {
  std::int64_t first;
  int column;  // where it starts in the packed keys
  int depth;
};

constexpr KeyChunk chunk_at(const PackedKeys& packed, int column, int most) {
  const int left = packed.depth - column;
  return {.first = packed.first + column, .column = column, .depth = left < most ? left : most};
}

template <typename Engine> struct Workspace {
  using Element = typename Engine::Element;
  static_assert(kSegment % Engine::kCols == 0 && kSegment % Engine::kDepth == 0);
  // Rows whose scores stand in the L1 cache together.
  static constexpr int kBlockRows = Engine::kRows < 32 ? 32 / Engine::kRows * Engine::kRows : 32;
  static constexpr int kBlocksAtOnce = 2;  // whose weights exist together
  // Whether weights are summed up once more as they were rounded for the product with V: by an engine whose largest
  // weight need not be 1.
  static constexpr bool kHasRoundedSums = requires { Engine::kHasRoundedSums; };
  static constexpr int kPadding = 16;  // keeps rows of a power-of-two width off each other's sets

  Workspace(const AttentionShape& shape, Carver& carver)
      : chunk(static_cast<int>(shape.chunk)),
        packed(static_cast<int>(shape.packed)),
        padded_rows(round_up_to(shape.rows_per_head, Engine::kRows)),
        blocks((shape.rows_per_head + kBlockRows - 1) / kBlockRows),
        value_columns(round_up_to(shape.value_width, Engine::kCols)),
        key_columns(packed / Engine::kCols * b_panel_elements<Engine>(shape.key_width)),
        score_stride(chunk + kPadding),
        out_stride(value_columns + kPadding) {
    const std::int64_t rows = shape.num_heads * padded_rows;
    queries =
        carver.take<Element>(rows / Engine::kRows * a_panel_elements<Engine>(shape.key_width));
    outs = carver.take<float>(rows * out_stride);
    maxima = carver.take<float>(rows + kF32Lanes);
    shifts = carver.take<float>(rows + kF32Lanes);
    limits = carver.take<float>(rows + kF32Lanes);
    factors = carver.take<float>(rows + kF32Lanes);
    sums = carver.take<float>(rows * kF32Lanes);
    rounded_sums = kHasRoundedSums ? carver.take<float>(rows * kF32Lanes) : sums;
    started = carver.take<bool>(shape.num_heads * blocks);
    keys = carver.take<Element>(shape.num_heads * key_columns);
    values = carver.take<Element>(shape.num_heads * value_columns * packed);
    weights = carver.take<Element>(kBlocksAtOnce * kBlockRows / Engine::kRows *
                                   a_panel_elements<Engine>(chunk));
    scores = carver.take<float>(kBlockRows * score_stride);
    decoded_queries = carver.take<Element>(Engine::kRows * shape.key_width);
    present = carver.take<std::uint8_t>(packed);
    visible = carver.take<std::uint8_t>(chunk);
  }

  std::int64_t state(std::int64_t head, std::int64_t row) const { return head * padded_rows + row; }
  bool& has_started(std::int64_t head, std::int64_t row) const {
    return started[head * blocks + row / kBlockRows];
  }
  Element* key_panels(std::int64_t head) const { return keys + head * key_columns; }
  Element* value_panels(std::int64_t head) const { return values + head * value_columns * packed; }

  int chunk;
  int packed;
  std::int64_t padded_rows;    // of one head
  std::int64_t blocks;         // of one head
  std::int64_t value_columns;  // value_width in whole panels
  std::int64_t key_columns;    // elements of a head's key panels
  std::int64_t score_stride;
  std::int64_t out_stride;

  Element* queries;     // A panels [heads][padded_rows / kRows]
  float* outs;          // [heads · padded_rows, out_stride], not normalised
  float* maxima;        // [heads · padded_rows]: what weights are relative to; scores, on AMX log4
  float* shifts;        // AMX: the same in log2, 0 where nothing was seen
  float* limits;        // AMX: scores above this ask for another maximum
  float* factors;       // AMX: from scores to log2
  float* sums;          // [heads · padded_rows, lanes]
  float* rounded_sums;  // AMX: of the weights as the product with V has them; else sums
  bool* started;        // [heads · blocks]: its outs hold numbers
  Element* keys;        // B panels [heads][packed / kCols]
  Element* values;      // B panels [heads][value_columns / kCols], PackedKeys::depth deep
  Element* weights;     // A panels of kBlocksAtOnce blocks, one chunk deep
  float* scores;        // [kBlockRows, score_stride]
  Element* decoded_queries;  // [kRows, key_width]
  std::uint8_t* present;     // [packed]: the key exists
  std::uint8_t* visible;     // [chunk]: the row sees it
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
