// SPDX-License-Identifier: Apache-2.0
// Which copies bring a KV tile into shared memory: from the rows that populate() found to a plain
// list of loads. The list also says how many rows a descriptor's box must have and how many bytes a
// barrier has to expect, so the three cannot disagree.
#pragma once

#include <cstdint>

#include "quire/host_device.h"
#include "quire/paged_row_indices.h"
#include "quire/tile_geometry.h"

namespace quire {

struct TileLoad {
  std::uint32_t row;  // row coordinate in the descriptor
  int smem_row;       // first row of the tile in shared memory
  int rows;

  bool operator==(const TileLoad&) const = default;
};

// What happens to the sub-tiles that lie behind the last key.
enum class TileTail : std::uint8_t {
  skip,       // no copy: shared memory keeps old bytes, so the consumer's mask must select, not add
  zero_fill,  // a copy from outside the tensor: zeros, at the price of its traffic
};

template <int kRows, int kPageSize> struct TileLoads {
  static constexpr int kBoxRows = kv_sub_tile_rows(kRows, kPageSize);
  static constexpr int kMaxLoads = kv_num_sub_tiles(kRows, kPageSize);
  static_assert(kMaxLoads > 0,
                "TileLoads: the part of the tile that a CTA loads must fit the pages");

  TileLoad loads[kMaxLoads];
  int count = 0;

  // row_bytes: what all issued depth granules of one row take in shared memory.
  QUIRE_HOST_DEVICE constexpr std::int64_t expected_bytes(std::int64_t row_bytes) const {
    return std::int64_t{count} * kBoxRows * row_bytes;
  }
};

// The kRows lines of the tile that start at first_line; lines from valid_rows on hold no keys.
template <int kRows, int kTileRows, int kPageSize, CtaPair kPair>
QUIRE_HOST_DEVICE constexpr TileLoads<kRows, kPageSize> loads_of_lines(
    const PagedRowIndices<kTileRows, kPageSize, kPair>& rows, int first_line, int valid_rows,
    TileTail tail) {
  using Loads = TileLoads<kRows, kPageSize>;
  Loads list{};
  for (int i = 0; i < Loads::kMaxLoads; ++i) {
    const int line = first_line + i * Loads::kBoxRows;
    const bool holds_keys = line < valid_rows;
    if (!holds_keys && tail == TileTail::skip) break;
    const std::uint32_t row =
        holds_keys ? rows.get_row(static_cast<std::uint32_t>(line)) : kUnassignedRow;
    list.loads[list.count++] = {row, i * Loads::kBoxRows, Loads::kBoxRows};
  }
  return list;
}

// K: a single CTA loads the whole tile, a pair's leader the first half and its peer the second.
template <int kTileRows, int kPageSize, CtaPair kPair>
QUIRE_HOST_DEVICE constexpr auto k_loads(const PagedRowIndices<kTileRows, kPageSize, kPair>& rows,
                                         int valid_rows = kTileRows,
                                         TileTail tail = TileTail::skip) {
  constexpr int kRows = kTileRows / PagedRowIndices<kTileRows, kPageSize, kPair>::kCtaGroup;
  return loads_of_lines<kRows>(rows, kPair == CtaPair::peer ? kRows : 0, valid_rows, tail);
}

// V: sub-tile `sub_tile` of kSubTiles equal ones, from every CTA's own copy of the rows.
template <int kSubTiles, int kTileRows, int kPageSize, CtaPair kPair>
QUIRE_HOST_DEVICE constexpr auto v_loads(const PagedRowIndices<kTileRows, kPageSize, kPair>& rows,
                                         int sub_tile, int valid_rows = kTileRows,
                                         TileTail tail = TileTail::skip) {
  static_assert(kTileRows % kSubTiles == 0, "v_loads: sub-tiles must divide the tile");
  constexpr int kRows = kTileRows / kSubTiles;
  return loads_of_lines<kRows>(rows, sub_tile * kRows, valid_rows, tail);
}

}  // namespace quire
