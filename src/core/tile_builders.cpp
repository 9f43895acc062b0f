// SPDX-License-Identifier: Apache-2.0
#include "quire/tile_builders.h"

#include <string>

#include "quire/error.h"

namespace quire {
namespace {

constexpr int kGatherRows = 4;

[[noreturn]] void refuse(const char* op, const char* argument, const std::string& expected,
                         std::int64_t actual) {
  throw Error(ErrorCode::invalid_value, op, argument, expected, std::to_string(actual));
}

template <typename Matrix>
TileDescriptor start(const Matrix& matrix, Swizzle swizzle, L2Promotion l2_promotion) {
  TileDescriptor tile;
  tile.dtype = matrix.dtype;
  tile.swizzle = swizzle;
  tile.l2_promotion = l2_promotion;
  tile.base_offset_bytes = matrix.base_offset_bytes;
  return tile;
}

// The fastest axis: contiguous columns, of which a box has `box`.
void add_columns(TileDescriptor& tile, std::int64_t columns, int box) {
  tile.rank = 1;
  tile.dims[0] = columns;
  tile.box[0] = box;
}

// One axis more, slower than those before it.
void add_axis(TileDescriptor& tile, std::int64_t extent, std::int64_t stride_bytes, int box) {
  const auto axis = static_cast<std::size_t>(tile.rank++);
  tile.dims[axis] = extent;
  tile.strides_bytes[axis - 1] = stride_bytes;
  tile.box[axis] = box;
}

template <typename Matrix>
void add_heads(TileDescriptor& tile, const Matrix& matrix, HeadAxis heads, int box,
               const char* op) {
  if (heads == HeadAxis::present) {
    add_axis(tile, matrix.num_heads, matrix.head_stride_bytes, box);
  } else if (matrix.num_heads != 1) {
    refuse(op, "num_heads", "1 for a tile without heads", matrix.num_heads);
  }
}

// Columns of a box: those asked for, or one granule.
int box_width(DType dtype, Swizzle swizzle, int asked) {
  return asked > 0 ? asked : swizzle_granularity(dtype, swizzle);
}

// Every element of a box is in one row of shared memory, which a swizzle limits to its span.
int gather_box_width(DType dtype, const Gather4Request& request) {
  return request.swizzle == Swizzle::none ? request.tile_width
                                          : swizzle_granularity(dtype, request.swizzle);
}

// The axes of a granule's columns, of rows and of granules.
template <typename Matrix>
TileDescriptor start_folded(const Matrix& matrix, std::int64_t num_rows,
                            const FoldedTileRequest& request) {
  constexpr const char* kOp = "make_folded_tile";
  const int granule = swizzle_granularity(matrix.dtype, request.swizzle);
  if (request.fold_chunks < 1) refuse(kOp, "fold_chunks", "at least 1", request.fold_chunks);
  if (matrix.row_width % granule != 0) {
    refuse(kOp, "row_width", "a multiple of the granule of " + std::to_string(granule),
           matrix.row_width);
  }
  TileDescriptor tile = start(matrix, request.swizzle, request.l2_promotion);
  add_columns(tile, granule, granule);
  add_axis(tile, num_rows, matrix.row_stride_bytes, request.box_rows);
  add_axis(tile, matrix.row_width / granule, swizzle_bytes(request.swizzle), request.fold_chunks);
  return tile;
}

void require_groups(const char* op, std::int64_t num_heads, int group_heads) {
  if (group_heads >= 1 && num_heads % group_heads == 0) return;
  refuse(op, "group_heads", "a divisor of " + std::to_string(num_heads), group_heads);
}

}  // namespace

TileDescriptor make_tile(const RowMatrix& matrix, const TileRequest& request) {
  TileDescriptor tile = start(matrix, request.swizzle, request.l2_promotion);
  add_columns(tile, matrix.row_width,
              box_width(matrix.dtype, request.swizzle, request.box_columns));
  add_heads(tile, matrix, request.heads, request.box_heads, "make_tile");
  add_axis(tile, matrix.num_rows, matrix.row_stride_bytes, request.box_rows);
  return tile;
}

TileDescriptor make_tile(const PageMatrix& matrix, const TileRequest& request) {
  TileDescriptor tile = start(matrix, request.swizzle, request.l2_promotion);
  add_columns(tile, matrix.row_width,
              box_width(matrix.dtype, request.swizzle, request.box_columns));
  add_axis(tile, matrix.page_size, matrix.row_stride_bytes, request.box_rows);
  add_heads(tile, matrix, request.heads, request.box_heads, "make_tile");
  add_axis(tile, matrix.num_pages, matrix.page_stride_bytes, 1);
  return tile;
}

TileDescriptor make_folded_tile(const RowMatrix& matrix, const FoldedTileRequest& request) {
  TileDescriptor tile = start_folded(matrix, matrix.num_rows, request);
  add_heads(tile, matrix, request.heads, 1, "make_folded_tile");
  return tile;
}

TileDescriptor make_folded_tile(const PageMatrix& matrix, const FoldedTileRequest& request) {
  TileDescriptor tile = start_folded(matrix, matrix.page_size, request);
  add_heads(tile, matrix, request.heads, 1, "make_folded_tile");
  add_axis(tile, matrix.num_pages, matrix.page_stride_bytes, 1);
  return tile;
}

TileDescriptor make_grouped_tile(const RowMatrix& matrix, const GroupedTileRequest& request) {
  require_groups("make_grouped_tile", matrix.num_heads, request.group_heads);
  const int group = request.group_heads;
  TileDescriptor tile = start(matrix, request.swizzle, request.l2_promotion);
  add_columns(tile, matrix.row_width,
              box_width(matrix.dtype, request.swizzle, request.box_columns));
  add_axis(tile, group, matrix.head_stride_bytes, group);
  add_axis(tile, matrix.num_rows, matrix.row_stride_bytes, request.box_rows);
  add_axis(tile, matrix.num_heads / group, group * matrix.head_stride_bytes, request.box_groups);
  return tile;
}

TileDescriptor make_quad_ordered_tile(const RowMatrix& matrix,
                                      const QuadOrderedTileRequest& request) {
  constexpr const char* kOp = "make_quad_ordered_tile";
  if (matrix.num_heads != 1) refuse(kOp, "num_heads", "1", matrix.num_heads);
  if (matrix.num_rows % kQuadGroupRows != 0) {
    refuse(kOp, "num_rows", "a multiple of 32", matrix.num_rows);
  }
  const std::int64_t row = matrix.row_stride_bytes;
  TileDescriptor tile = start(matrix, Swizzle::b128, request.l2_promotion);
  add_columns(tile, matrix.row_width, swizzle_granularity(matrix.dtype, Swizzle::b128));
  add_axis(tile, 2, row, 2);      // e
  add_axis(tile, 4, 8 * row, 4);  // c
  add_axis(tile, 4, 2 * row, 4);  // s
  add_axis(tile, matrix.num_rows / kQuadGroupRows, kQuadGroupRows * row, request.box_groups);
  return tile;
}

TileDescriptor make_ragged_tile(const RowMatrix& matrix, const RaggedTileRequest& request) {
  require_groups("make_ragged_tile", matrix.num_heads, request.group_heads);
  const int group = request.group_heads;
  TileDescriptor tile = start(matrix, request.swizzle, request.l2_promotion);
  tile.base_offset_bytes -= request.tile_rows * matrix.row_stride_bytes;
  add_columns(tile, matrix.row_width, swizzle_granularity(matrix.dtype, request.swizzle));
  if (group > 1) add_axis(tile, group, matrix.head_stride_bytes, group);
  // Two axes step by rows: line i of the copy has coordinate tile_rows - n + i in the first, so it
  // is inside for i < n only; the second brings the address back by first_row + n rows.
  add_axis(tile, request.tile_rows, matrix.row_stride_bytes, request.tile_rows);
  add_axis(tile, matrix.num_rows + 1, matrix.row_stride_bytes, 1);
  add_axis(tile, matrix.num_heads / group, group * matrix.head_stride_bytes, 1);
  return tile;
}

std::array<std::int64_t, 5> ragged_coordinate(const RaggedTileRequest& request, std::int64_t column,
                                              std::int64_t first_row, int num_rows,
                                              std::int64_t head) {
  const std::int64_t line = request.tile_rows - num_rows;
  const std::int64_t row = first_row + num_rows;
  if (request.group_heads == 1) return {column, line, row, head};
  return {column, 0, line, row, head};
}

TileDescriptor make_gather4_tile(const RowMatrix& matrix, const Gather4Request& request) {
  constexpr const char* kOp = "make_gather4_tile";
  if (request.tile_width <= 0 || request.tile_width > matrix.row_width) {
    refuse(kOp, "tile_width", "in [1, " + std::to_string(matrix.row_width) + "]",
           request.tile_width);
  }
  if (request.tile_height <= 0 || request.tile_height % kGatherRows != 0) {
    refuse(kOp, "tile_height", "a positive multiple of 4", request.tile_height);
  }
  TileDescriptor tile = start(matrix, request.swizzle, request.l2_promotion);
  add_columns(tile, matrix.row_width, gather_box_width(matrix.dtype, request));
  add_heads(tile, matrix, HeadAxis::absent, 1, kOp);
  add_axis(tile, matrix.num_rows, matrix.row_stride_bytes, 1);
  return tile;
}

Gather4Tile Gather4Tile::of(DType dtype, const Gather4Request& request) {
  const int width = gather_box_width(dtype, request);
  return {.tile_height = request.tile_height,
          .box_width = width,
          .column_groups = ceil_div(request.tile_width, width),
          .dtype = dtype};
}

TileDescriptor make_scale_tile(const ScaleMatrix& scales, int box_rows) {
  TileDescriptor tile;
  tile.dtype = scales.dtype;
  add_columns(tile, scales.num_rows, box_rows);
  // The stride of a single head is never used, but must be a multiple of 16: any row count works.
  const bool is_single = scales.num_heads == 1;
  add_axis(tile, scales.num_heads,
           is_single ? (scales.head_stride_bytes + 15) / 16 * 16 : scales.head_stride_bytes, 1);
  return tile;
}

TileDescriptor make_scale_tile(const PageScaleMatrix& scales, int box_rows) {
  TileDescriptor tile;
  tile.dtype = scales.dtype;
  add_columns(tile, scales.page_size, box_rows);
  add_axis(tile, scales.num_pages, scales.page_stride_bytes, 1);
  return tile;
}

}  // namespace quire
