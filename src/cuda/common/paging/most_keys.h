// SPDX-License-Identifier: Apache-2.0
// The bound on keys that planners share, whose ops may not include each other.
#pragma once

#include <algorithm>
#include <cstdint>

#include "quire/ops/problem.h"

namespace quire::cuda {

// Keys of the longest sequence that may come: the caller's bound, or the room of the page table.
inline std::int64_t most_keys(const RaggedSize& ragged, const CacheShape& cache) {
  const std::int64_t room = cache.max_pages * cache.page_size;
  return ragged.max_keys < 0 ? room : std::min(room, ragged.max_keys);
}

}  // namespace quire::cuda
