// SPDX-License-Identifier: Apache-2.0
// Tile descriptors as pure functions of an operand's memory, seen as a matrix of rows.
//
//                       moves                                      coordinate, fastest first
//   make_tile           one granule of depth of box_rows rows      (column, head, row)
//   make_folded_tile    all granules of box_rows rows at once      (0, row, granule, head)
//     in chunk_inner    the same in atoms of 8 rows                (0, 0, granule, row / 8, head)
//   make_ragged_tile    n <= tile_rows rows, zeros after them      ragged_coordinate()
//   make_gather4_tile   four rows anywhere, zeros for row -1       (column) and four rows
//   make_scale_tile     consecutive scales                         (row, head)
//
// Part of a row (the rope tail behind an fp8 latent, or fp8 bytes moved as i64) is the same builder
// over columns_as().
#pragma once

#include <array>
#include <cstdint>

#include "quire/dtype.h"
#include "quire/export.h"
#include "quire/kv_operand.h"
#include "quire/row_matrix.h"
#include "quire/tile_descriptor.h"
#include "quire/tile_geometry.h"

namespace quire {

struct TileRequest {
  Swizzle swizzle = Swizzle::b128;
  int box_rows = 0;  // rows per copy: TileLoads::kBoxRows
  L2Promotion l2_promotion = L2Promotion::none;
};
// The columns that a last, incomplete granule has past the row's end are zeros.
QUIRE_API TileDescriptor make_tile(const RowMatrix& matrix, const TileRequest& request);

struct FoldedTileRequest {
  Swizzle swizzle = Swizzle::b128;
  int box_rows = 0;
  int fold_chunks = 0;  // from tma_fold_chunks, at least 2
  FoldOrder order = FoldOrder::chunk_outer;
  L2Promotion l2_promotion = L2Promotion::none;
};
QUIRE_API TileDescriptor make_folded_tile(const RowMatrix& matrix,
                                          const FoldedTileRequest& request);

struct RaggedTileRequest {
  Swizzle swizzle = Swizzle::b128;
  int tile_rows = 0;    // most rows of one copy
  int group_heads = 1;  // neighbouring heads that travel together (queries of one KV head)
  L2Promotion l2_promotion = L2Promotion::none;
};
// The base lies tile_rows rows before the operand's: that address is computed and never read.
QUIRE_API TileDescriptor make_ragged_tile(const RowMatrix& matrix,
                                          const RaggedTileRequest& request);

// Coordinate that moves num_rows rows from first_row on; `head` counts groups of group_heads.
QUIRE_API std::array<std::int64_t, 5> ragged_coordinate(const RaggedTileRequest& request,
                                                        std::int64_t column, std::int64_t first_row,
                                                        int num_rows, std::int64_t head = 0);

struct Gather4Request {
  int tile_width = 0;   // columns to fetch
  int tile_height = 4;  // rows of the tile, a multiple of 4
  Swizzle swizzle = Swizzle::none;
  L2Promotion l2_promotion = L2Promotion::none;
};
// Gathers rows of one head. The instruction exists from Blackwell on; the value does not need it.
QUIRE_API TileDescriptor make_gather4_tile(const RowMatrix& matrix, const Gather4Request& request);

// The copies of one gathered tile: column group g, rows 4r … 4r+3.
struct QUIRE_API Gather4Tile {
  int tile_height;
  int box_width;  // columns of one copy
  int column_groups;
  DType dtype;

  static Gather4Tile of(DType dtype, const Gather4Request& request);
  int column(int group) const { return group * box_width; }
  std::int64_t smem_offset(int group, int quad) const {  // in elements
    return (std::int64_t{group} * tile_height + 4 * quad) * box_width;
  }
  // What the copies write, incomplete last group included: this, not width × height, is what a
  // barrier must expect.
  std::int64_t expected_bytes() const {
    return bytes_for(dtype, std::int64_t{column_groups} * tile_height * box_width);
  }
};

QUIRE_API TileDescriptor make_scale_tile(const ScaleMatrix& scales, int box_rows);

// The same for operands. Operands without a row matrix (scales) do not have tiles.
template <KvDescriptors Operand>
TileDescriptor make_tile(const Operand& operand, const TileRequest& request) {
  return make_tile(operand.row_matrix(), request);
}
template <KvDescriptors Operand>
TileDescriptor make_folded_tile(const Operand& operand, const FoldedTileRequest& request) {
  return make_folded_tile(operand.row_matrix(), request);
}
template <KvDescriptors Operand>
TileDescriptor make_ragged_tile(const Operand& operand, const RaggedTileRequest& request) {
  return make_ragged_tile(operand.row_matrix(), request);
}
template <KvDescriptors Operand>
TileDescriptor make_gather4_tile(const Operand& operand, const Gather4Request& request) {
  return make_gather4_tile(operand.row_matrix(), request);
}
template <KvScaleDescriptors Operand>
TileDescriptor make_scale_tile(const Operand& operand, int box_rows) {
  return make_scale_tile(operand.scale_matrix(), box_rows);
}

}  // namespace quire
