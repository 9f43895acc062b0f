// SPDX-License-Identifier: Apache-2.0
#include "ops/flash_attention/key_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace quire::ops {
namespace {

// Those of a list that may name a block.
void copy_ids(const TensorView& key_blocks, std::int64_t token, std::int64_t head,
              std::vector<std::int32_t>& ids) {
  const auto* list = key_blocks.as<const std::int32_t>() + key_blocks.offset({token, head, 0});
  ids.clear();
  for (std::int64_t slot = 0; slot < key_blocks.shape[2]; ++slot) {
    const std::int32_t id = list[slot * key_blocks.strides[2]];
    if (id >= 0) ids.push_back(id);
  }
}

}  // namespace

void check_key_blocks(Arguments& check, const FlashAttentionArgs& args, std::int64_t kv_heads) {
  check.is_at_least("key_block_size", args.key_block_size, 1);
  if (!args.key_blocks.has_value()) return;
  check.tensor("key_blocks", *args.key_blocks)
      .is(DType::i32, {args.q.shape[0], kv_heads, "max_blocks"})
      .has_full_rows()
      .has_dense_rows();
  if (is_on_host(*args.key_blocks)) check_block_values(check, *args.key_blocks);
}

// Lists as they are chosen ascend, and then one look is enough.
void check_block_values(const Arguments& check, const TensorView& key_blocks) {
  std::vector<std::int32_t> ids;
  for (std::int64_t token = 0; token < key_blocks.shape[0]; ++token) {
    for (std::int64_t head = 0; head < key_blocks.shape[1]; ++head) {
      copy_ids(key_blocks, token, head, ids);
      const auto is_not_below = [](std::int32_t id, std::int32_t next) { return id >= next; };
      if (std::ranges::adjacent_find(ids, is_not_below) == ids.end()) continue;
      std::ranges::sort(ids);
      const auto twice = std::ranges::adjacent_find(ids);
      if (twice == ids.end()) continue;
      check.fail(
          "key_blocks", "of lists that name a block once",
          fmt::format("block {} twice in the list of token {}, KV head {}", *twice, token, head));
    }
  }
}

}  // namespace quire::ops
