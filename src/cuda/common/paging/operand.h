// SPDX-License-Identifier: Apache-2.0
// The K and V of a batch as kernels receive them: plain values, made on the host out of a KvLayerView. A kernel asks a
// PageCursor (page_cursor.cuh) where a key stands, and reads it by an address of PagedOperand or by a tensor map of the same
// pages. What the memory is like is said here alone: pages of a cache, or rows of a ragged batch behind each other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/common/rows/divisor.h"
#include "quire/kv_layer_view.h"

namespace quire::cuda {

// Only PageCursor reads the ids.
class PageTable {
 public:
  PageTable() = default;
  // Pages of rows, and pages of scales: ids of their own in the same columns.
  static PageTable of_rows(const KvLayerView& view) {
    return {view.page_table, view.page_table_stride, view.num_pages, view};
  }
  static PageTable of_scales(const KvLayerView& view) {
    return {view.scales.page_table, view.scales.page_table_stride, view.scales.num_pages, view};
  }
  // The first columns alone.
  PageTable cut(int max_pages) const {
    PageTable table = *this;
    table.max_pages_ = max_pages;
    return table;
  }

  QUIRE_HOST_DEVICE int page_size() const { return static_cast<int>(page_size_.value()); }
  QUIRE_HOST_DEVICE unsigned num_pages() const { return num_pages_; }

 private:
  friend class PageCursor;

  PageTable(const std::uint32_t* ids, std::int64_t stride, std::int64_t num_pages,
            const KvLayerView& view)
      : ids_(ids),
        stride_(stride),
        max_pages_(static_cast<int>(view.max_pages)),
        num_pages_(static_cast<unsigned>(num_pages)),
        page_size_(static_cast<std::uint32_t>(view.page_size)),
        first_rows_(view.first_rows) {}

  const std::uint32_t* ids_ = nullptr;  // [batch, max_pages]; from num_pages on: unassigned
  std::int64_t stride_ = 0;             // from sequence to sequence
  int max_pages_ = 0;
  unsigned num_pages_ = 0;
  Divisor page_size_{1};
  const std::uint32_t* first_rows_ = nullptr;  // [batch]: a sequence's first key; null: 0
};

// Rows that are read by their addresses: [num_pages, page_size, heads, row] of K, and V at a distance from it.
struct PagedOperand {
  const std::byte* keys = nullptr;
  std::int64_t value_offset_bytes = 0;
  std::int64_t page_stride_bytes = 0;
  std::int64_t token_stride_bytes = 0;
  std::int64_t head_stride_bytes = 0;
  int row_bytes = 0;
  PageTable pages{};

  static PagedOperand of(const KvLayerView& keys, const std::byte* values) {
    return {.keys = keys.data,
            .value_offset_bytes = values == nullptr ? 0 : values - keys.data,
            .page_stride_bytes = keys.page_stride_bytes,
            .token_stride_bytes = keys.token_stride_bytes,
            .head_stride_bytes = keys.head_stride_bytes,
            .row_bytes = keys.row_format.row_bytes,
            .pages = PageTable::of_rows(keys)};
  }
};

}  // namespace quire::cuda
