// SPDX-License-Identifier: Apache-2.0
// How a tile of K or V rows meets pages and shared memory: pure functions, evaluated by the
// descriptor builders, by the kernels that issue the copies and by the code that sets the expected
// bytes. All three must agree, or a transaction barrier waits for ever; so there is one function
// for each number.
#pragma once

#include <cstdint>

#include "quire/dtype.h"
#include "quire/host_device.h"

namespace quire {

// Shared-memory swizzle of a tensor-map copy, named after its span.
enum class Swizzle : std::uint8_t { none, b32, b64, b128 };

// One CTA, or one of the two that share a KV tile: K rows are split between them, V rows are not.
enum class CtaPair : std::uint8_t { single, leader, peer };

QUIRE_HOST_DEVICE constexpr int ceil_div(int value, int divisor) {
  return (value + divisor - 1) / divisor;
}
QUIRE_HOST_DEVICE constexpr int round_up(int value, int multiple) {
  return ceil_div(value, multiple) * multiple;
}

// Span in bytes. Without a swizzle the span is one 16-byte unit, not 0.
QUIRE_HOST_DEVICE constexpr int swizzle_bytes(Swizzle swizzle) {
  return 16 << static_cast<int>(swizzle);
}
// Columns of one span: the depth that one copy moves per row (a "granule").
QUIRE_HOST_DEVICE constexpr int swizzle_granularity(DType dtype, Swizzle swizzle) {
  return swizzle_bytes(swizzle) * 8 / bits(dtype);
}
// Depth rounded up to whole granules; the copy fills the columns past the row's end with zeros.
QUIRE_HOST_DEVICE constexpr int padded_depth(DType dtype, Swizzle swizzle, int depth) {
  return round_up(depth, swizzle_granularity(dtype, swizzle));
}
QUIRE_HOST_DEVICE constexpr int depth_chunks(DType dtype, Swizzle swizzle, int depth) {
  return ceil_div(depth, swizzle_granularity(dtype, swizzle));
}

// Rows that one copy may cover: a tile inside one page, else one page. page_size 0: not paged.
QUIRE_HOST_DEVICE constexpr int kv_sub_tile_rows(int tile_rows, int page_size) {
  return page_size <= 0 || page_size >= tile_rows ? tile_rows : page_size;
}
// Tiles never straddle a page border unevenly: one of the two divides the other.
QUIRE_HOST_DEVICE constexpr bool tile_fits_pages(int tile_rows, int page_size) {
  if (tile_rows <= 0) return false;
  if (page_size <= 0) return true;
  return page_size >= tile_rows ? page_size % tile_rows == 0 : tile_rows % page_size == 0;
}
// Copies per tile, or 0 where the tile does not fit the pages.
QUIRE_HOST_DEVICE constexpr int kv_num_sub_tiles(int tile_rows, int page_size) {
  return tile_fits_pages(tile_rows, page_size) ? tile_rows / kv_sub_tile_rows(tile_rows, page_size)
                                               : 0;
}
// Sub-tiles of the tile at base_row that hold keys before end_row; the rest of a partial last tile
// has none.
QUIRE_HOST_DEVICE constexpr int valid_pages(std::int64_t base_row, std::int64_t end_row,
                                            int tile_rows, int page_size) {
  if (end_row <= base_row) return 0;
  const std::int64_t rows = end_row - base_row;
  if (rows >= tile_rows) return kv_num_sub_tiles(tile_rows, page_size);
  return ceil_div(static_cast<int>(rows), kv_sub_tile_rows(tile_rows, page_size));
}

// Columns to allocate for a page table of `columns` so that every table read of populate() takes
// the vector path: rows start 32-byte aligned, and the widest tile (16 pages) may begin at the last
// column. A table without the padding is read correctly too, only more slowly at its end.
QUIRE_HOST_DEVICE constexpr std::int64_t padded_table_columns(std::int64_t columns) {
  return (columns + 7) / 8 * 8 + 16;
}

}  // namespace quire
