// SPDX-License-Identifier: Apache-2.0
// Where a mask lets the walk over KV tiles begin, and how well that beginning is aligned.
// populate() takes the alignment as a compile-time promise, so both numbers come from here.
#pragma once

#include <cstdint>
#include <numeric>

#include "quire/export.h"
#include "quire/host_device.h"
#include "quire/mask.h"
#include "quire/tile_geometry.h"

namespace quire {

// Divides start_column() of a mask whose root is `kind`, and so every tile base that is reached
// from there in steps of tile_rows. Windows and chunks skip keys page by page; the other kinds skip
// whole tiles or nothing.
QUIRE_HOST_DEVICE constexpr int start_column_alignment(MaskKind kind, int tile_rows,
                                                       int page_size) {
  const bool by_page = kind == MaskKind::sliding_window || kind == MaskKind::chunked;
  return by_page && page_size > 1 ? kv_sub_tile_rows(tile_rows, page_size) : tile_rows;
}

// Alignment of the bases that a consumer reaches when it walks through a tile in steps of `stride`
// rows. Passing the tile's own alignment on would promise more than holds.
QUIRE_HOST_DEVICE constexpr int sub_range_alignment(int alignment, int stride) {
  return std::gcd(alignment, stride);
}

// First column that a tile walk for queries from position first_query on has to load: no query at
// or after first_query sees a key before it.
QUIRE_API std::int64_t start_column(const Mask& mask, std::int64_t first_query, int tile_rows,
                                    int page_size);

}  // namespace quire
