// SPDX-License-Identifier: Apache-2.0
// Encoded sparse indices: page · page_size + offset in an i32, by arithmetic, not bit fields.
// Layers and K/V do not appear in it: an operand's get_tma_row() turns it into a row of its own
// layer. Every negative index means "no key" and stays -1 through every conversion.
#pragma once

#include <cstdint>

#include "quire/host_device.h"

namespace quire {

inline constexpr std::int32_t kNoSparseIndex = -1;

struct SparsePosition {
  std::int64_t page;  // -1: no key
  std::int32_t offset;

  bool operator==(const SparsePosition&) const = default;
};

// Needs num_pages · page_size < 2^31, which operands check. A page that is not one of num_pages
// gives -1.
QUIRE_HOST_DEVICE constexpr std::int32_t encode_sparse_index(SparsePosition position,
                                                             std::int64_t num_pages,
                                                             std::int32_t page_size) {
  if (position.page < 0 || position.page >= num_pages) return kNoSparseIndex;
  return static_cast<std::int32_t>(position.page * page_size + position.offset);
}

QUIRE_HOST_DEVICE constexpr SparsePosition decode_sparse_index(std::int32_t encoded,
                                                               std::int32_t page_size) {
  if (encoded < 0) return {-1, 0};
  return {encoded / page_size, encoded % page_size};
}

}  // namespace quire
