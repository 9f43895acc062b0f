// SPDX-License-Identifier: Apache-2.0
// Views of some sequences of a batch.
#pragma once

#include <cstdint>

#include "quire/paged_kv_cache.h"

namespace quire {

// [first, first + count) of the first dimension.
TensorView rows_of(const TensorView& tensor, std::int64_t first, std::int64_t count);

// The same pool under the page tables of sequences [first, first + count).
PagedKVCache sequences_of(const PagedKVCache& cache, std::int64_t first, std::int64_t count);

}  // namespace quire
