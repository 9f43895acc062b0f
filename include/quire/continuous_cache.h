// SPDX-License-Identifier: Apache-2.0
// Continuous batching (one block = one sequence slot) is a paged cache whose page holds a whole
// sequence: page_size is the slot's length and the table has one column. There is no second cache
// type; every op and PagedKvOperand take the result (with page_size 0 in the operand's config,
// tiles need not divide the slot).
#pragma once

#include "quire/export.h"
#include "quire/paged_kv_cache.h"

namespace quire {

// blocks [num_slots, kv, num_layers, max_length, num_kv_heads, row], cache_lengths u32 [batch],
// slots u32 [batch]: the slot of each sequence. Throws Error for other shapes or dtypes.
QUIRE_API PagedKVCache continuous_cache(const TensorView& blocks, const TensorView& cache_lengths,
                                        const TensorView& slots);

}  // namespace quire
