// SPDX-License-Identifier: Apache-2.0
#include "quire/paged_kv_operand.h"

#include <algorithm>
#include <string>

#include "quire/error.h"

namespace quire {
namespace {

constexpr std::int64_t kRowLimit = kUnassignedRow;

[[noreturn]] void reject(const char* argument, const std::string& expected, std::int64_t actual) {
  throw Error(ErrorCode::invalid_value, "PagedKvOperand", argument, expected,
              std::to_string(actual));
}

}  // namespace

KvHeads PagedKvOperand::heads() const {
  const ScaleLayerView& scales = view_.scales;
  return {.count = view_.num_heads,
          .row_stride_bytes = view_.head_stride_bytes,
          .plane_stride_bytes = scales.defined() ? bytes_for(scales.dtype, scales.head_stride) : 0};
}

void PagedKvOperand::locate(std::int64_t sequence, std::int64_t head, std::int64_t first,
                            std::int64_t count, RowAddress* rows) const {
  const ScaleLayerView& scales = view_.scales;
  const PageCursor pages = view_.pages();
  const PageCursor scale_pages = view_.scale_pages();
  const std::int64_t page_size = pages.page_size;
  const std::int64_t plane_stride = bytes_for(scales.dtype, scales.token_stride);
  std::int64_t column = first / page_size;
  std::int64_t slot = first - column * page_size;
  for (std::int64_t i = 0; i < count; ++column, slot = 0) {
    const std::int64_t page = pages.page_at(sequence, column);
    std::byte* row = page < 0 ? nullptr : view_.row_in(page, slot, head);
    const std::int64_t scale_page = scales.defined() ? scale_pages.page_at(sequence, column) : -1;
    std::byte* plane = scale_page < 0 ? nullptr : scales.plane_in(scale_page, slot, head);
    const std::int64_t last = std::min(count, i + page_size - slot);
    for (; i < last; ++i) {
      rows[i] = {.row = row, .plane = plane};
      if (row != nullptr) row += view_.token_stride_bytes;
      if (plane != nullptr) plane += plane_stride;
    }
  }
}

std::int64_t PagedKvOperand::rows_per_page_stride() const {
  const std::int64_t row_stride = view_.token_stride_bytes;
  if (row_stride < view_.row_format.row_bytes) {
    reject("view.token_stride_bytes",
           "at least a row of " + std::to_string(view_.row_format.row_bytes) + " bytes",
           row_stride);
  }
  if (view_.page_stride_bytes % row_stride != 0) {
    reject("view.page_stride_bytes",
           "a multiple of the token stride of " + std::to_string(row_stride) + " bytes",
           view_.page_stride_bytes);
  }
  const std::int64_t rows = view_.page_stride_bytes / row_stride;
  // Divided, not multiplied: a pool of absurd size must not overflow the check itself.
  if (rows > 0 && view_.num_pages > (kRowLimit - 1) / rows) {
    reject("view.num_pages",
           "at most " + std::to_string((kRowLimit - 1) / rows) + " (rows stay below 2^30)",
           view_.num_pages);
  }
  return rows;
}

RowMatrix PagedKvOperand::row_matrix() const {
  const std::int64_t rows = rows_per_page_stride();
  const DType dtype = view_.row_format.parts[0].dtype;
  return {.dtype = dtype,
          .num_rows = view_.num_pages == 0 ? 0 : (view_.num_pages - 1) * rows + view_.page_size,
          .num_heads = view_.num_heads,
          .row_width = std::int64_t{view_.row_format.row_bytes} * 8 / bits(dtype),
          .row_stride_bytes = view_.token_stride_bytes,
          .head_stride_bytes = view_.head_stride_bytes};
}

}  // namespace quire
