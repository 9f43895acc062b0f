// SPDX-License-Identifier: Apache-2.0
// What the kernels of compress_keys receive.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/kv_layer_view.h"

namespace quire::cuda::any::compress_keys {

inline constexpr int kThreads = 512;
inline constexpr int kMostVectors = 64;  // of eight columns, side by side

// A tensor of rows of numbers.
struct DenseRows {
  const std::byte* data;
  DType dtype;
  std::int64_t row_bytes;
};

// kv (part 0) and gate (part 1) of tokens of earlier calls.
struct StateRows {
  std::byte* data;  // [slots, rows, 2, series · width]
  DType dtype;
  std::int64_t slots;
  std::int64_t rows;
  std::int64_t slot_bytes;
  std::int64_t row_bytes;
  std::int64_t part_bytes;
};

struct CompressParams {
  int width;
  int series;
  int ratio;
  int rope;
  std::int64_t tokens;
  DenseRows parts[2];  // kv and gate [tokens, series · width]
  DenseRows bias;      // [ratio, series · width]
  DenseRows gamma;     // [1, width]
  DenseRows freqs;     // [max_pos, rope]
  std::int64_t max_pos;
  double epsilon;
  StateRows state;
  const std::uint32_t* state_slots;  // [batch]; null: sequence b has slot b
  const std::uint32_t* row_offsets;  // [batch + 1]
  KvLayerView rows;
  bool scales_are_static;
  int vectors;  // threads side by side, a power of two
};

}  // namespace quire::cuda::any::compress_keys
