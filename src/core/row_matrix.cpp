// SPDX-License-Identifier: Apache-2.0
#include "quire/row_matrix.h"

#include <string>

#include "quire/error.h"
#include "quire/kv_layer_view.h"
#include "quire/tensor_view.h"

namespace quire {
namespace {

[[noreturn]] void refuse(const char* op, const char* argument, const std::string& expected,
                         const std::string& actual) {
  throw Error(ErrorCode::invalid_value, op, argument, expected, actual);
}

template <typename Matrix>
Matrix window_of(const Matrix& matrix, DType dtype, std::int64_t first_byte, std::int64_t width) {
  const std::int64_t row_bytes = bytes_for(matrix.dtype, matrix.row_width);
  const std::int64_t end = first_byte + bytes_for(dtype, width);
  if (first_byte < 0 || width <= 0 || end > row_bytes) {
    refuse("columns_as", "width", "inside the row of " + std::to_string(row_bytes) + " bytes",
           std::to_string(end));
  }
  Matrix window = matrix;
  window.dtype = dtype;
  window.row_width = width;
  window.base_offset_bytes += first_byte;
  return window;
}

}  // namespace

RowMatrix row_matrix_of(const TensorView& tensor) {
  constexpr const char* kOp = "row_matrix_of";
  const bool has_heads = tensor.rank == 3;
  if (tensor.rank != 2 && !has_heads) {
    refuse(kOp, "tensor", "[rows, width] or [rows, heads, width]", tensor.describe());
  }
  if (!tensor.has_dense_rows()) {
    refuse(kOp, "tensor", "contiguous columns",
           tensor.describe() + " with stride " + std::to_string(tensor.strides[tensor.rank - 1]));
  }
  return {.dtype = tensor.dtype,
          .num_rows = tensor.shape[0],
          .num_heads = has_heads ? tensor.shape[1] : 1,
          .row_width = tensor.shape[tensor.rank - 1],
          .row_stride_bytes = bytes_for(tensor.dtype, tensor.strides[0]),
          .head_stride_bytes = bytes_for(tensor.dtype, tensor.strides[has_heads ? 1 : 0])};
}

PageMatrix page_matrix_of(const KvLayerView& view, DType dtype, std::int64_t width) {
  return {.dtype = dtype,
          .num_pages = view.num_pages,
          .page_size = view.page_size,
          .num_heads = view.num_heads,
          .row_width = width,
          .page_stride_bytes = view.page_stride_bytes,
          .row_stride_bytes = view.token_stride_bytes,
          .head_stride_bytes = view.head_stride_bytes};
}

RowMatrix columns_as(const RowMatrix& matrix, DType dtype, std::int64_t first_byte,
                     std::int64_t width) {
  return window_of(matrix, dtype, first_byte, width);
}

PageMatrix columns_as(const PageMatrix& matrix, DType dtype, std::int64_t first_byte,
                      std::int64_t width) {
  return window_of(matrix, dtype, first_byte, width);
}

PageScaleMatrix page_scale_matrix_of(const KvLayerView& view) {
  constexpr const char* kOp = "page_scale_matrix_of";
  const std::int64_t scales_per_row = std::int64_t{view.num_heads} * view.scales.num_slots;
  if (scales_per_row != 1) {
    refuse(kOp, "view", "one scale per row", std::to_string(scales_per_row));
  }
  if (view.scales.token_stride != 1) {
    refuse(kOp, "view", "scales of a page that follow each other",
           "a stride of " + std::to_string(view.scales.token_stride));
  }
  return {.dtype = view.scales.dtype,
          .num_pages = view.scales.num_pages,
          .page_size = view.page_size,
          .page_stride_bytes = bytes_for(view.scales.dtype, view.scales.page_stride)};
}

}  // namespace quire
