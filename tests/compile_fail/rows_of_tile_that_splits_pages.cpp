// SPDX-License-Identifier: Apache-2.0
// A tile of 128 rows neither holds whole pages of 48 nor lies in one.
// expect: tile rows must divide the page size
#include "quire/paged_row_indices.h"

#if defined(QUIRE_MUST_FAIL)
constexpr int kPageSize = 48;
#else
constexpr int kPageSize = 32;
#endif

int num_pages() {
  return quire::PagedRowIndices<128, kPageSize>::kNumPages;
}
