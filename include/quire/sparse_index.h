// SPDX-License-Identifier: Apache-2.0
// Encoded sparse indices: page · page_size + slot in an i32, by arithmetic, not bit fields. Layers and
// K/V do not appear in it: in the row matrix of a layer the same token is row page ·
// rows_per_page_stride + slot. Every token without a page is -1.
#pragma once

#include <cstdint>

#include "quire/page_cursor.h"

namespace quire {

inline constexpr std::int32_t kNoSparseIndex = -1;

// Needs num_pages · page_size < 2^31.
constexpr std::int32_t encode_sparse_index(const PageSlot& place, std::int64_t page_size) {
  if (place.page < 0) return kNoSparseIndex;
  return static_cast<std::int32_t>(place.page * page_size + place.slot);
}

}  // namespace quire
