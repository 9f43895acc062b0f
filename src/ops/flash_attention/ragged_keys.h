// SPDX-License-Identifier: Apache-2.0
// K and V of a ragged batch without pages, in place of flash_attention's cache.
#pragma once

#include "ops/argument.h"
#include "ops/cache_check.h"
#include "quire/ops/flash_attention.h"

namespace quire::ops {

// Whether any of k, v and key_offsets is given.
bool has_ragged_keys(const FlashAttentionArgs& args);

// All three together and nothing of a cache: k [total_keys, kv_heads, row], v [total_keys, kv_heads, value row] of the
// same dtype, key_offsets u32 [batch + 1] from 0 to total_keys without a step back. What comes back describes them as
// one page of all rows.
PagedBatch check_ragged_keys(Arguments& check, const FlashAttentionArgs& args);

}  // namespace quire::ops
