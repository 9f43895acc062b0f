// SPDX-License-Identifier: Apache-2.0
// The physical rows of one KV tile: what populate() of an operand returns.
//
// A row counts lines of heads × columns from the operand's base, across pages, layers and K/V:
//   row = page · rows_per_page_stride + token % page_size
// A tile of kTileRows rows needs one entry when a page holds the tile, else one per page.
#pragma once

#include <cstdint>

#include "quire/host_device.h"
#include "quire/tile_geometry.h"

namespace quire {

inline constexpr std::uint32_t kUnassignedPage = 0xFFFFFFFFu;
// The row of a token that has no page. Operands refuse caches that have as many rows, so this
// coordinate (plus any offset within a tile) lies outside every descriptor and a tensor-map load
// fills zeros.
inline constexpr std::uint32_t kUnassignedRow = 1u << 30;

template <int kTileRows, int kPageSize, CtaPair kPair = CtaPair::single> struct PagedRowIndices {
  static_assert(
      tile_fits_pages(kTileRows, kPageSize),
      "PagedRowIndices: tile rows must divide the page size, or the page size the tile rows");
  static constexpr int kEffPage = kv_sub_tile_rows(kTileRows, kPageSize);
  static constexpr int kNumPages = kv_num_sub_tiles(kTileRows, kPageSize);
  static constexpr int kCtaGroup = kPair == CtaPair::single ? 1 : 2;

  // The whole tile, for V, also in a pair of CTAs; K then takes half of it (tile_loads.h).
  std::uint32_t rows[kNumPages];

  // Row of the tile's line `offset`. Lines of an unassigned page give kUnassignedRow or more.
  QUIRE_HOST_DEVICE constexpr std::uint32_t get_row(std::uint32_t offset) const {
    if constexpr (kNumPages == 1) {
      return rows[0] + offset;
    } else {
      return rows[offset / kEffPage] + offset % kEffPage;
    }
  }
};

// Entries of one sequence in a page table.
struct PageTableRow {
  const std::uint32_t* entries;
  std::int64_t num_columns;
};

// How a tile's page ids are read.
enum class TableRead : std::uint8_t {
  vector,   // loads of `chunk` ids each
  scalar,   // one id at a time: a chunk of 1, or the first id is not aligned to chunk · 4 bytes
  clipped,  // one at a time up to the table's last column; ids past it are kUnassignedPage
};

QUIRE_HOST_DEVICE constexpr int largest_power_of_two_dividing(int value) {
  return value & -value;
}

// Ids per vector load: a power of two of at most 8 (32 bytes) that divides the tile's pages and the
// alignment of its first column, which is base_alignment / page_size.
QUIRE_HOST_DEVICE constexpr int table_chunk(int tile_rows, int base_alignment, int page_size) {
  const int num_pages = kv_num_sub_tiles(tile_rows, page_size);
  if (num_pages <= 1 || base_alignment < page_size) return 1;
  const int by_pages = largest_power_of_two_dividing(num_pages);
  const int by_base = largest_power_of_two_dividing(base_alignment / page_size);
  const int smaller = by_pages < by_base ? by_pages : by_base;
  return smaller < 8 ? smaller : 8;
}

// The vector path is taken iff kChunk > 1, the first id's address is a multiple of kChunk · 4 bytes
// (a table row stride and a first column that are multiples of kChunk, over an aligned table, give
// that) and all kCount columns are inside the table. Any other table is read by the other two
// paths, with the same result.
template <int kCount, int kChunk>
QUIRE_HOST_DEVICE TableRead choose_table_read(PageTableRow table, std::int64_t first_column) {
  if (first_column + kCount > table.num_columns) return TableRead::clipped;
  const auto address = reinterpret_cast<std::uintptr_t>(table.entries + first_column);
  return kChunk > 1 && address % (kChunk * sizeof(std::uint32_t)) == 0 ? TableRead::vector
                                                                       : TableRead::scalar;
}

// Reads the ids of columns [first_column, first_column + kCount) into pages.
template <int kCount, int kChunk>
QUIRE_HOST_DEVICE void read_page_ids(PageTableRow table, std::int64_t first_column,
                                     std::uint32_t (&pages)[kCount]) {
  static_assert(kCount % kChunk == 0, "a tile is read in whole chunks");
  const std::uint32_t* first = table.entries + first_column;
  switch (choose_table_read<kCount, kChunk>(table, first_column)) {
    case TableRead::vector:
      for (int i = 0; i < kCount; i += kChunk) {
        constexpr int kBytes = kChunk * static_cast<int>(sizeof(std::uint32_t));
        __builtin_memcpy(pages + i, __builtin_assume_aligned(first + i, kBytes), kBytes);
      }
      return;
    case TableRead::scalar:
      for (int i = 0; i < kCount; ++i) pages[i] = first[i];
      return;
    case TableRead::clipped:
      for (int i = 0; i < kCount; ++i) {
        pages[i] = first_column + i < table.num_columns ? first[i] : kUnassignedPage;
      }
      return;
  }
}

}  // namespace quire
