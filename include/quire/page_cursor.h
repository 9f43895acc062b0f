// SPDX-License-Identifier: Apache-2.0
// Where the rows of a sequence stand in a pool of pages. Nothing else on the host reads a page id
// (tests/lint/page_tables.py).
//
//   page = page_table[sequence, position / page_size]    slot = position % page_size
//
// A column past the end of the table and an id that is not one of num_pages mean "no page".
#pragma once

#include <cstdint>

#include "quire/host_device.h"

namespace quire {

inline constexpr std::uint32_t kUnassignedPage = 0xFFFFFFFFu;

// The place of one token: a page, and a row of it.
struct PageSlot {
  std::int64_t page = -1;  // -1: no page
  std::int64_t slot = 0;

  QUIRE_HOST_DEVICE bool exists() const { return page >= 0; }
  bool operator==(const PageSlot&) const = default;
};

struct PageCursor {
  const std::uint32_t* page_table = nullptr;  // [batch, max_pages]
  std::int64_t row_stride = 0;                // entries from one sequence to the next
  std::int64_t max_pages = 0;                 // columns
  std::int64_t num_pages = 0;                 // of the pool
  std::int64_t page_size = 1;

  QUIRE_HOST_DEVICE PageSlot find(std::int64_t sequence, std::int64_t position) const {
    const std::int64_t column = position / page_size;
    return {.page = page_at(sequence, column), .slot = position - column * page_size};
  }

  // The page of the positions [column · page_size, (column + 1) · page_size); -1: none.
  QUIRE_HOST_DEVICE std::int64_t page_at(std::int64_t sequence, std::int64_t column) const {
    const std::int64_t page = id(sequence, column);
    return page < num_pages ? page : -1;
  }

  // The entry of a column as it stands in the table, for checks and messages.
  QUIRE_HOST_DEVICE std::uint32_t id(std::int64_t sequence, std::int64_t column) const {
    return column < max_pages ? page_table[sequence * row_stride + column] : kUnassignedPage;
  }

  // One sequence alone, as sequence 0.
  PageCursor of_sequence(std::int64_t sequence) const {
    PageCursor own = *this;
    own.page_table += sequence * row_stride;
    return own;
  }

  // What read(entries, columns) finds in the entries of sequence 0: lookups of many columns at once,
  // by the vector instructions of whoever calls. All columns lie in [0, max_pages).
  template <typename Columns, typename Read> auto gather(Columns columns, const Read& read) const {
    return read(page_table, columns);
  }
};

}  // namespace quire
