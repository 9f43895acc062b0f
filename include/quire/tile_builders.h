// SPDX-License-Identifier: Apache-2.0
// Tile descriptors as pure functions of memory seen as a matrix: the only code that fills one in.
//
//                          moves                              coordinate, fastest first
//   make_tile              box_rows × box_columns             (column, head, row)
//     of pages             the same, of one page              (column, row in page, head, page)
//   make_folded_tile       box_rows × fold_chunks granules    (0, row, granule, head)
//     of pages             the same, of one page              (0, row in page, granule, head, page)
//   make_grouped_tile      box_rows rows of groups of heads   (column, head in group, row, group)
//   make_quad_ordered_tile groups of 32 rows, reordered       (column, 0, 0, 0, row / 32)
//   make_ragged_tile       n <= tile_rows rows, then zeros    ragged_coordinate()
//   make_gather4_tile      four rows, zeros for row -1        (column) and four rows
//   make_scale_tile        consecutive scales                 (row, head)
//     of pages             the same, of one page              (row in page, page)
//
// With HeadAxis::absent the coordinate has no head. Part of a row (the rope tail behind an fp8
// latent, or fp8 bytes moved as i64) is the same builder over columns_as().
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

// Whether heads are an axis of the tile. Without it the matrix must have one head.
enum class HeadAxis : std::uint8_t { present, absent };

struct TileRequest {
  Swizzle swizzle = Swizzle::b128;
  int box_columns = 0;  // 0: one granule of the swizzle
  int box_rows = 0;     // rows per copy; of pages: at most the page's
  int box_heads = 1;
  HeadAxis heads = HeadAxis::present;
  L2Promotion l2_promotion = L2Promotion::none;
};
// Columns of a box past the row's end are zeros.
QUIRE_API TileDescriptor make_tile(const RowMatrix& matrix, const TileRequest& request);
QUIRE_API TileDescriptor make_tile(const PageMatrix& matrix, const TileRequest& request);

struct FoldedTileRequest {
  Swizzle swizzle = Swizzle::b128;
  int box_rows = 0;
  int fold_chunks = 0;  // granules of a row that one copy brings
  HeadAxis heads = HeadAxis::present;
  L2Promotion l2_promotion = L2Promotion::none;
};
// In shared memory all rows of a granule, then all rows of the next: what fold_chunks copies of one
// granule would leave there. The row is a whole number of granules.
QUIRE_API TileDescriptor make_folded_tile(const RowMatrix& matrix,
                                          const FoldedTileRequest& request);
QUIRE_API TileDescriptor make_folded_tile(const PageMatrix& matrix,
                                          const FoldedTileRequest& request);

struct GroupedTileRequest {
  Swizzle swizzle = Swizzle::b128;
  int box_columns = 0;  // 0: one granule of the swizzle
  int box_rows = 0;
  int group_heads = 1;  // a divisor of the heads; all of a group are copied
  int box_groups = 1;
  L2Promotion l2_promotion = L2Promotion::none;
};
// In shared memory the heads of group 0 of every row, then those of group 1.
QUIRE_API TileDescriptor make_grouped_tile(const RowMatrix& matrix,
                                           const GroupedTileRequest& request);

inline constexpr int kQuadGroupRows = 32;

struct QuadOrderedTileRequest {
  int box_groups = 0;  // of 32 rows × 128 bytes, swizzle b128; the matrix has whole groups
  L2Promotion l2_promotion = L2Promotion::none;
};
// Row 8c + 2s + e of every 32 lands in line 8s + 2c + e (c, s < 4; e < 2).
QUIRE_API TileDescriptor make_quad_ordered_tile(const RowMatrix& matrix,
                                                const QuadOrderedTileRequest& request);

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
  // What a barrier must expect: the copies write whole boxes, also of an incomplete last group.
  std::int64_t expected_bytes() const {
    return bytes_for(dtype, std::int64_t{column_groups} * tile_height * box_width);
  }
};

QUIRE_API TileDescriptor make_scale_tile(const ScaleMatrix& scales, int box_rows);
QUIRE_API TileDescriptor make_scale_tile(const PageScaleMatrix& scales, int box_rows);

// The same for operands. Those whose rows stand anywhere (gathered ones) have no tiles.
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

}  // namespace quire
