// SPDX-License-Identifier: Apache-2.0
// Tiles of the rows of a ragged batch, none of which spans two sequences, numbered so that a block
// finds its own from the offsets alone: no list, no prefix sum, no host.
//
// A sequence of the rows [a, b) owns the tiles from a / tile_rows + sequence on. The next one begins
// at or after their end, because (b - a) / tile_rows + 1 tiles suffice; numbers in between are empty.
#pragma once

#include <cstdint>

#include "quire/host_device.h"

namespace quire::cuda {

// Tiles to launch for `rows` rows of `batch` sequences.
QUIRE_HOST_DEVICE constexpr std::int64_t num_row_tiles(std::int64_t rows, std::int64_t batch,
                                                       std::int64_t tile_rows) {
  return rows / tile_rows + batch;
}

struct RowTile {
  int sequence;
  std::int64_t first_row;  // within the sequence
  std::int64_t num_rows;   // ≤ 0: an empty tile

  __device__ bool is_empty() const { return num_rows <= 0; }
};

// row_offsets u32 [batch + 1] counts tokens, each of which has rows_per_token rows.
__device__ inline RowTile find_row_tile(const std::uint32_t* row_offsets, std::int64_t batch,
                                        std::int64_t rows_per_token, int tile_rows,
                                        std::int64_t tile) {
  const auto first_tile = [&](std::int64_t sequence) {
    return row_offsets[sequence] * rows_per_token / tile_rows + sequence;
  };
  std::int64_t low = 0;
  std::int64_t high = batch - 1;
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (first_tile(middle) <= tile) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const std::int64_t rows =
      (std::int64_t{row_offsets[low + 1]} - row_offsets[low]) * rows_per_token;
  const std::int64_t first = (tile - first_tile(low)) * tile_rows;
  return {.sequence = static_cast<int>(low),
          .first_row = first,
          .num_rows = min(rows - first, std::int64_t{tile_rows})};
}

}  // namespace quire::cuda
