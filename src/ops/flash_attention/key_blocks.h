// SPDX-License-Identifier: Apache-2.0
// Lists of blocks, one for every token and KV head of flash_attention.
#pragma once

#include "ops/argument.h"
#include "quire/ops/flash_attention.h"

namespace quire::ops {

// key_blocks and key_block_size, which count only together.
void check_key_blocks(Arguments& check, const FlashAttentionArgs& args, std::int64_t kv_heads);
// The values alone, of lists that are on the host: no list names a block twice.
void check_block_values(const Arguments& check, const TensorView& key_blocks);

}  // namespace quire::ops
