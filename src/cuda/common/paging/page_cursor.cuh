// SPDX-License-Identifier: Apache-2.0
// The only device code that reads page ids.
//
//   PageCursor   of one sequence, for kernels that plan their lookups: find() returns at once, and only the use of the
//                slot waits for memory. Kernels look up 32 boxes at a time, or one tile ahead of its load.
//   row_of …     rows of a KvLayerView, for kernels that take any page size and positions of 64 bits
//   row_at_slot  rows that the caller named himself, without a page table
//
// A key without a page has a page id of num_pages or more; TMA writes zeros for it, since it lies outside the map.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/common/paging/operand.h"
#include "cuda/common/rows/load_once.cuh"
#include "cuda/common/rows/token_place.cuh"

namespace quire::cuda {

struct PageSlot {
  unsigned page;  // num_pages or more: none
  int row;        // in the page
  int column;     // of the page table; -1: not looked up
};
inline constexpr PageSlot kNowhere{.page = kUnassignedPage, .row = 0, .column = -1};

// How an id is loaded. No barrier or asm holds back an early one: for kernels that look up one key a step ahead.
enum class IdLoad { plain, early };

class PageCursor {
 public:
  PageCursor() = default;
  __device__ PageCursor(const PageTable& table, int sequence)
      : ids_(table.ids_ + sequence * table.stride_),
        max_pages_(table.max_pages_),
        num_pages_(table.num_pages_),
        page_size_(table.page_size_) {}
  // Ids of another table in the same columns: the scales beside the rows. Lanes that look up one or the other choose
  // between ids alone; the page size stays a parameter of the kernel and takes no registers.
  __device__ PageCursor beside(const PageTable& table, int sequence) const {
    PageCursor cursor = *this;
    cursor.ids_ = table.ids_ + sequence * table.stride_;
    cursor.num_pages_ = table.num_pages_;
    return cursor;
  }
  // For kernels that take rows of a ragged batch as well: a register more, which not all have.
  __device__ static PageCursor from_first_row(const PageTable& table, int sequence) {
    PageCursor cursor(table, sequence);
    if (table.first_rows_ != nullptr) {
      cursor.first_row_ = static_cast<int>(table.first_rows_[sequence]);
    }
    return cursor;
  }

  __device__ unsigned num_pages() const { return num_pages_; }
  __device__ bool is_mapped(const PageSlot& slot) const { return slot.page < num_pages_; }

  // Of a key in [0, end); of others none.
  template <IdLoad kLoad = IdLoad::plain> __device__ PageSlot find(int key, int end) const {
    const int row = key + first_row_;
    return slot_in<kLoad>(static_cast<int>(page_size_.quotient(static_cast<unsigned>(row))), row,
                          key, end);
  }
  // The same by an integer division: slower, and without registers for the divisor's constants.
  __device__ PageSlot find_by_division(int key, int end) const {
    const int row = key + first_row_;
    return slot_in<IdLoad::plain>(row / static_cast<int>(page_size_.value()), row, key, end);
  }
  // The id in a column that the table has.
  __device__ unsigned page(int column) const { return ids_[column]; }
  // The page in the column of another table's slot: that of the scales beside the rows.
  template <IdLoad kLoad = IdLoad::plain>
  __device__ unsigned page_beside(const PageSlot& rows) const {
    return load_id<kLoad>(rows.column, rows.column >= 0);
  }
  // Sends for the ids around entry `at` of a whole table, before it is known which sequence needs them.
  __device__ static void prefetch(const PageTable& table, int batch, std::int64_t at) {
    if (at < (batch - 1) * table.stride_ + table.max_pages_) prefetch_line(table.ids_ + at);
  }

 private:
  template <IdLoad kLoad> __device__ unsigned load_id(int column, bool is_there) const {
    if constexpr (kLoad == IdLoad::early) return is_there ? __ldg(ids_ + column) : num_pages_;
    return is_there ? ids_[column] : num_pages_;
  }
  template <IdLoad kLoad> __device__ PageSlot slot_in(int column, int row, int key, int end) const {
    const bool is_there =
        static_cast<unsigned>(key) < static_cast<unsigned>(end) && column < max_pages_;
    return {.page = load_id<kLoad>(column, is_there),
            .row = row - column * static_cast<int>(page_size_.value()),
            .column = is_there ? column : -1};
  }

  const std::uint32_t* ids_;
  int max_pages_;
  unsigned num_pages_;
  Divisor page_size_;
  int first_row_ = 0;
};

// Rows of a view, whatever its page size: column of the page table and slot in the page.
struct PageColumn {
  std::int64_t column;
  std::int64_t slot;
};

// In 32 bits wherever the position fits: a 64-bit division takes as long as a load from L2.
__device__ inline PageColumn page_column(std::int64_t position, std::int32_t page_size) {
  if (position <= 0xffffffff) {
    const auto low = static_cast<std::uint32_t>(position);
    const std::uint32_t column = low / static_cast<std::uint32_t>(page_size);
    return {column, low - column * static_cast<std::uint32_t>(page_size)};
  }
  return {position / page_size, position % page_size};
}

// Ids in a column below view.max_pages.
__device__ inline std::uint32_t page_in(const KvLayerView& view, std::int64_t sequence,
                                        std::int64_t column) {
  return view.page_table[sequence * view.page_table_stride + column];
}
__device__ inline std::uint32_t page_in(const ScaleLayerView& scales, std::int64_t sequence,
                                        std::int64_t column) {
  return scales.page_table[sequence * scales.page_table_stride + column];
}

// Sends for the first ids of a whole table, a line of them by each lane of a warp: a kernel of a few µs waits for
// lengths, then for ids, and many tables are no longer than this.
__device__ inline void prefetch_ids(const KvLayerView& view, int lane) {
  constexpr int kLineIds = 128 / sizeof(std::uint32_t);
  if (view.batch == 0 || view.max_pages == 0) return;
  const std::int64_t ids = (view.batch - 1) * view.page_table_stride + view.max_pages;
  const std::int64_t first = std::int64_t{lane} * kLineIds;
  if (first < ids) prefetch_line(view.page_table + first);
}

// Start of a row, null where its page is unassigned.
__device__ inline std::byte* row_of(const KvLayerView& view, std::int64_t sequence,
                                    std::int64_t token, std::int64_t head) {
  const std::int64_t column = token / view.page_size;
  if (column >= view.max_pages) return nullptr;
  const std::int64_t page = page_in(view, sequence, column);
  if (page >= view.num_pages) return nullptr;
  return view.data + page * view.page_stride_bytes +
         token % view.page_size * view.token_stride_bytes + head * view.head_stride_bytes;
}
__device__ inline bool is_mapped(const KvLayerView& view, std::int64_t sequence,
                                 std::int64_t token) {
  const std::int64_t column = token / view.page_size;
  return column < view.max_pages && page_in(view, sequence, column) < view.num_pages;
}
// The first scale of a row in the scales tensor, null where there is none.
__device__ inline std::byte* scale_of_row(const KvLayerView& view, std::int64_t sequence,
                                          std::int64_t token, std::int64_t head) {
  const ScaleLayerView& scales = view.scales;
  if (scales.data == nullptr) return nullptr;
  const std::int64_t column = token / view.page_size;
  if (column >= view.max_pages) return nullptr;
  const std::int64_t page = page_in(scales, sequence, column);
  if (page >= scales.num_pages) return nullptr;
  const std::int64_t element = page * scales.page_stride +
                               token % view.page_size * scales.token_stride +
                               head * scales.head_stride;
  return scales.data + element * (bits(scales.dtype) / 8);
}

// Where a new token stands. As with a PageCursor only the use of the slot waits for its page id: a kernel may compute in
// between.
__device__ inline PageSlot slot_of(const KvLayerView& view, const TokenPlace& place) {
  if (!place.exists()) return kNowhere;
  const PageColumn at = page_column(place.position, view.page_size);
  if (at.column >= view.max_pages) return kNowhere;
  return {.page = page_in(view, place.sequence, at.column),
          .row = static_cast<int>(at.slot),
          .column = static_cast<int>(at.column)};
}
// The row of head 0 in a slot, null where the page is unassigned.
__device__ inline std::byte* row_in_slot(const KvLayerView& view, const PageSlot& slot) {
  if (slot.page >= view.num_pages) return nullptr;
  return view.data + slot.page * view.page_stride_bytes +
         static_cast<unsigned>(slot.row) * view.token_stride_bytes;
}
// The row of head 0 of a new token, null where its page is unassigned or the token is nobody's.
__device__ inline std::byte* first_row(const KvLayerView& view, const TokenPlace& place) {
  return row_in_slot(view, slot_of(view, place));
}

// The first scale of head 0 of a new token in the scales tensor, null where there is none.
__device__ inline std::byte* first_scale(const KvLayerView& view, const TokenPlace& place) {
  const ScaleLayerView& scales = view.scales;
  if (scales.data == nullptr || !place.exists()) return nullptr;
  const PageColumn at = page_column(place.position, view.page_size);
  if (at.column >= view.max_pages) return nullptr;
  const std::int64_t page = page_in(scales, place.sequence, at.column);
  if (page >= scales.num_pages) return nullptr;
  const std::int64_t element = page * scales.page_stride + at.slot * scales.token_stride;
  return scales.data + element * (bits(scales.dtype) / 8);
}

// The row of head 0 at slot = page · page_size + row of the page. Nobody has checked a slot: one that is negative, or past
// the pool, has no row.
__device__ inline bool is_in_pool(const KvLayerView& view, std::int64_t slot) {
  return slot >= 0 && slot < view.num_pages * view.page_size;
}
__device__ inline std::byte* row_at_slot(const KvLayerView& view, std::int64_t slot) {
  if (!is_in_pool(view, slot)) return nullptr;
  const PageColumn at = page_column(slot, view.page_size);  // its column is the page itself
  return view.data + at.column * view.page_stride_bytes + at.slot * view.token_stride_bytes;
}
// The first scale of head 0 at a slot in the scales tensor, null where there is none.
__device__ inline std::byte* scale_at_slot(const KvLayerView& view, std::int64_t slot) {
  const ScaleLayerView& scales = view.scales;
  if (scales.data == nullptr || !is_in_pool(view, slot)) return nullptr;
  const PageColumn at = page_column(slot, view.page_size);
  if (at.column >= scales.num_pages) return nullptr;
  const std::int64_t element = at.column * scales.page_stride + at.slot * scales.token_stride;
  return scales.data + element * (bits(scales.dtype) / 8);
}

// Tokens of a ragged batch whose K and V are stored, for epilogues that look up rows while others multiply.
struct StoredTokens {
  const KvLayerView& keys;
  const std::uint32_t* row_offsets;  // [batch + 1]
  int batch;
  int tokens;

  // Byte offset of a token's K row (head 0) from keys.data; -1 for a token past the end or a page that is not there.
  __device__ std::int64_t row_offset(int token) const {
    if (token >= tokens) return -1;
    const int sequence = sequence_of(row_offsets, batch, static_cast<std::uint32_t>(token));
    const std::int64_t position =
        std::int64_t{keys.cache_lengths[sequence]} + token - row_offsets[sequence];
    const std::byte* row = row_of(keys, sequence, position, 0);
    return row == nullptr ? -1 : row - keys.data;
  }

  // Of tokens `first`, `first + step` …, side by side: a lookup is a chain of some ten loads, and a thread that followed
  // one chain after the other was later than the products of few tokens.
  template <int kTokens>
  __device__ void find_rows(int first, int step, std::int64_t (&found)[kTokens]) const {
    int sequences[kTokens] = {};
    for (int left = batch; left > 1; left -= left / 2) {
#pragma unroll
      for (int i = 0; i < kTokens; ++i) {
        const int middle = sequences[i] + left / 2;
        if (row_offsets[middle] <= static_cast<std::uint32_t>(first + i * step)) {
          sequences[i] = middle;
        }
      }
    }
    std::int64_t positions[kTokens];
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      positions[i] = std::int64_t{keys.cache_lengths[sequences[i]]} + first + i * step -
                     row_offsets[sequences[i]];
    }
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const int token = first + i * step;
      const std::byte* row = token < tokens ? row_of(keys, sequences[i], positions[i], 0) : nullptr;
      found[i] = row == nullptr ? -1 : row - keys.data;
    }
  }

  // Byte offset of a token's first scale of K in the scales tensor; -1 where there is none.
  __device__ std::int64_t scale_offset(int token) const {
    if (token >= tokens) return -1;
    const int sequence = sequence_of(row_offsets, batch, static_cast<std::uint32_t>(token));
    // In 32 bits, as lengths are: a division in 64 has no registers here.
    const std::uint32_t position = keys.cache_lengths[sequence] + token - row_offsets[sequence];
    const std::uint32_t column = position / static_cast<std::uint32_t>(keys.page_size);
    if (column >= keys.max_pages) return -1;
    const ScaleLayerView& scales = keys.scales;
    const std::int64_t page = page_in(scales, sequence, column);
    if (page >= scales.num_pages) return -1;
    const std::uint32_t slot = position - column * keys.page_size;
    return (page * scales.page_stride + slot * scales.token_stride) * (bits(scales.dtype) / 8);
  }
};

}  // namespace quire::cuda
