// SPDX-License-Identifier: Apache-2.0
#include "quire/tile_builders.h"

#include <string>

#include "quire/error.h"

namespace quire {
namespace {

constexpr int kAtomRows = 8;  // rows of a swizzle atom
constexpr int kGatherRows = 4;

void require(bool holds, const char* op, const char* argument, const std::string& expected,
             std::int64_t actual) {
  if (holds) return;
  throw Error(ErrorCode::invalid_value, op, argument, expected, std::to_string(actual));
}

TileDescriptor start(const RowMatrix& matrix, Swizzle swizzle, L2Promotion l2_promotion) {
  TileDescriptor tile;
  tile.dtype = matrix.dtype;
  tile.swizzle = swizzle;
  tile.l2_promotion = l2_promotion;
  tile.base_offset_bytes = matrix.base_offset_bytes;
  return tile;
}

// Every element of a box is in one row of shared memory, which a swizzle limits to its span.
int gather_box_width(DType dtype, const Gather4Request& request) {
  return request.swizzle == Swizzle::none ? request.tile_width
                                          : swizzle_granularity(dtype, request.swizzle);
}

}  // namespace

RowMatrix columns_as(const RowMatrix& matrix, DType dtype, std::int64_t first_byte,
                     std::int64_t width) {
  const std::int64_t row_bytes = bytes_for(matrix.dtype, matrix.row_width);
  const std::int64_t end = first_byte + bytes_for(dtype, width);
  require(first_byte >= 0 && width > 0 && end <= row_bytes, "columns_as", "width",
          "inside the row of " + std::to_string(row_bytes) + " bytes", end);
  RowMatrix window = matrix;
  window.dtype = dtype;
  window.row_width = width;
  window.base_offset_bytes += first_byte;
  return window;
}

TileDescriptor make_tile(const RowMatrix& matrix, const TileRequest& request) {
  TileDescriptor tile = start(matrix, request.swizzle, request.l2_promotion);
  tile.rank = 3;
  tile.dims = {matrix.row_width, matrix.num_heads, matrix.num_rows};
  tile.strides_bytes = {matrix.head_stride_bytes, matrix.row_stride_bytes};
  tile.box = {swizzle_granularity(matrix.dtype, request.swizzle), 1, request.box_rows};
  return tile;
}

TileDescriptor make_folded_tile(const RowMatrix& matrix, const FoldedTileRequest& request) {
  constexpr const char* kOp = "make_folded_tile";
  const int granule = swizzle_granularity(matrix.dtype, request.swizzle);
  const std::int64_t granule_bytes = swizzle_bytes(request.swizzle);
  require(request.fold_chunks >= 2, kOp, "fold_chunks", "at least 2", request.fold_chunks);
  require(matrix.row_width % granule == 0, kOp, "row_width",
          "a multiple of the granule of " + std::to_string(granule), matrix.row_width);
  const std::int64_t chunks = matrix.row_width / granule;

  TileDescriptor tile = start(matrix, request.swizzle, request.l2_promotion);
  if (request.order == FoldOrder::chunk_outer) {
    tile.rank = 4;
    tile.dims = {granule, matrix.num_rows, chunks, matrix.num_heads};
    tile.strides_bytes = {matrix.row_stride_bytes, granule_bytes, matrix.head_stride_bytes};
    tile.box = {granule, request.box_rows, request.fold_chunks, 1};
    return tile;
  }
  require(request.box_rows % kAtomRows == 0, kOp, "box_rows", "a multiple of 8", request.box_rows);
  require(matrix.num_rows % kAtomRows == 0, kOp, "num_rows", "a multiple of 8", matrix.num_rows);
  tile.rank = 5;
  tile.dims = {granule, kAtomRows, chunks, matrix.num_rows / kAtomRows, matrix.num_heads};
  tile.strides_bytes = {matrix.row_stride_bytes, granule_bytes, kAtomRows * matrix.row_stride_bytes,
                        matrix.head_stride_bytes};
  tile.box = {granule, kAtomRows, request.fold_chunks, request.box_rows / kAtomRows, 1};
  return tile;
}

TileDescriptor make_ragged_tile(const RowMatrix& matrix, const RaggedTileRequest& request) {
  require(request.group_heads >= 1 && matrix.num_heads % request.group_heads == 0,
          "make_ragged_tile", "group_heads", "a divisor of " + std::to_string(matrix.num_heads),
          request.group_heads);
  const int granule = swizzle_granularity(matrix.dtype, request.swizzle);
  const std::int64_t num_groups = matrix.num_heads / request.group_heads;
  TileDescriptor tile = start(matrix, request.swizzle, request.l2_promotion);
  tile.base_offset_bytes -= request.tile_rows * matrix.row_stride_bytes;
  // Two dimensions step by rows: line i of the copy has coordinate tile_rows - n + i in the first,
  // so it is inside for i < n only; the second brings the address back by first_row + n rows.
  if (request.group_heads == 1) {
    tile.rank = 4;
    tile.dims = {matrix.row_width, request.tile_rows, matrix.num_rows + 1, matrix.num_heads};
    tile.strides_bytes = {matrix.row_stride_bytes, matrix.row_stride_bytes,
                          matrix.head_stride_bytes};
    tile.box = {granule, request.tile_rows, 1, 1};
    return tile;
  }
  tile.rank = 5;
  tile.dims = {matrix.row_width, request.group_heads, request.tile_rows, matrix.num_rows + 1,
               num_groups};
  tile.strides_bytes = {matrix.head_stride_bytes, matrix.row_stride_bytes, matrix.row_stride_bytes,
                        request.group_heads * matrix.head_stride_bytes};
  tile.box = {granule, request.group_heads, request.tile_rows, 1, 1};
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
  require(matrix.num_heads == 1, kOp, "num_heads", "1: rows are gathered whole", matrix.num_heads);
  require(request.tile_width > 0 && request.tile_width <= matrix.row_width, kOp, "tile_width",
          "in [1, " + std::to_string(matrix.row_width) + "]", request.tile_width);
  require(request.tile_height > 0 && request.tile_height % kGatherRows == 0, kOp, "tile_height",
          "a positive multiple of 4", request.tile_height);
  TileDescriptor tile = start(matrix, request.swizzle, request.l2_promotion);
  tile.rank = 2;
  tile.dims = {matrix.row_width, matrix.num_rows};
  tile.strides_bytes = {matrix.row_stride_bytes};
  tile.box = {gather_box_width(matrix.dtype, request), 1};
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
  tile.rank = 2;
  tile.dims = {scales.num_rows, scales.num_heads};
  // The stride of a single head is never used, but must be a multiple of 16: any row count works.
  tile.strides_bytes = {scales.num_heads == 1 ? (scales.head_stride_bytes + 15) / 16 * 16
                                              : scales.head_stride_bytes};
  tile.box = {box_rows, 1};
  return tile;
}

}  // namespace quire
