// SPDX-License-Identifier: Apache-2.0
// The order of weight rows in a B tile that makes a wgmma thread own whole 16-byte runs of outputs.
//
// A thread of a quad (c = 0 … 3) receives columns 8s + 2c + e of every 32 (s = 0 … 3, e = 0, 1): four
// scattered pairs. Storing weight row 8c + 2s + e where the instruction looks for row 8s + 2c + e
// gives it columns 8c … 8c + 7 instead: one 16-byte store, no shuffle, no staging. TMA
// does the reordering, as a box over (K, e, c, s, group) whose strides name the source rows.
#pragma once

#include <cstdint>

#include "quire/tile_descriptor.h"

namespace quire::cuda {

inline constexpr int kGroupRows = 32;

// What TMA is told of `rows` × `columns` elements; a box is 128 bytes of K of box_groups
// groups. `rows` is a multiple of 32.
inline TileDescriptor quad_ordered_tile(DType dtype, std::int64_t rows, std::int64_t columns,
                                        std::int64_t row_stride_bytes, int box_groups) {
  TileDescriptor tile;
  tile.dtype = dtype;
  tile.rank = 5;
  tile.dims = {columns, 2, 4, 4, rows / kGroupRows};
  tile.strides_bytes = {row_stride_bytes, 8 * row_stride_bytes, 2 * row_stride_bytes,
                        kGroupRows * row_stride_bytes};
  tile.box = {static_cast<std::int32_t>(128 / bytes_for(dtype, 1)), 2, 4, 4, box_groups};
  tile.swizzle = Swizzle::b128;
  tile.l2_promotion = L2Promotion::b256;
  return tile;
}

}  // namespace quire::cuda
