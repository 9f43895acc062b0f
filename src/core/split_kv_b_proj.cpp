// SPDX-License-Identifier: Apache-2.0
#include "core/split_kv_b_proj.h"

#include <utility>

namespace quire {
namespace {

constexpr std::int64_t kBlockRows = 128;  // of one scale

// A matrix [heads · (first + second), columns], one of its two bands of rows per head.
struct Band {
  std::int64_t heads;
  std::int64_t rows_per_head;
  std::int64_t first_row;
  std::int64_t num_rows;

  Band in_blocks() const {
    return {.heads = heads,
            .rows_per_head = rows_per_head / kBlockRows,
            .first_row = first_row / kBlockRows,
            .num_rows = num_rows / kBlockRows};
  }
};

TensorView view_band(const TensorView& matrix, const Band& band) {
  TensorView view = matrix;
  view.data = matrix.as<std::byte>() + bytes_for(matrix.dtype, band.first_row * matrix.strides[0]);
  view.rank = 3;
  view.shape = {band.heads, band.num_rows, matrix.shape[1]};
  view.strides = {band.rows_per_head * matrix.strides[0], matrix.strides[0], matrix.strides[1]};
  return view;
}

TensorView transpose(TensorView view) {
  std::swap(view.shape[1], view.shape[2]);
  std::swap(view.strides[1], view.strides[2]);
  return view;
}

}  // namespace

SplitKvBProj split_kv_b_proj(const TensorView& kv_b_proj, std::int64_t heads, std::int64_t nope,
                             const std::optional<TensorView>& scale) {
  const std::int64_t per_head = kv_b_proj.shape[0] / heads;
  const Band key{.heads = heads, .rows_per_head = per_head, .first_row = 0, .num_rows = nope};
  const Band value{
      .heads = heads, .rows_per_head = per_head, .first_row = nope, .num_rows = per_head - nope};
  SplitKvBProj split{.w_uk = transpose(view_band(kv_b_proj, key)),
                     .w_uv = view_band(kv_b_proj, value)};
  if (scale.has_value()) {
    split.w_uk_scale = transpose(view_band(*scale, key.in_blocks()));
    split.w_uv_scale = view_band(*scale, value.in_blocks());
  }
  return split;
}

}  // namespace quire
