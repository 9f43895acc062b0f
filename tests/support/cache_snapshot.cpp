// SPDX-License-Identifier: Apache-2.0
#include "support/cache_snapshot.h"

#include "reference/ragged.h"

namespace quire::test {

void CacheSnapshot::allow_row(std::int64_t layer, KvSide side, std::int64_t sequence,
                              std::int64_t head, std::int64_t token, std::int64_t first,
                              std::int64_t last) {
  const std::int64_t start =
      cache_.row_offset_bytes(layer, side == KvSide::value, sequence, head, token);
  const std::int64_t end = last < 0 ? cache_.view().format().row_bytes : last;
  for (std::int64_t i = first; i < end; ++i)
    allowed_.at(static_cast<std::size_t>(start + i)) = true;
}

void CacheSnapshot::allow_new_tokens(std::int64_t layer, KvSide side, std::int64_t first,
                                     std::int64_t last) {
  const PagedKVCache view = cache_.view();
  const KvLayerView key = view.key(layer);
  for (const reference::Token& token : reference::tokens_of(cache_.row_offsets(), view)) {
    if (!key.is_mapped(token.sequence, token.position)) continue;
    for (std::int64_t head = 0; head < view.num_kv_heads(); ++head) {
      allow_row(layer, side, token.sequence, head, token.position, first, last);
    }
  }
}

std::int64_t CacheSnapshot::unexpected_changes() const {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (!allowed_[i] && blocks_[i] != cache_.block_bytes()[i]) ++count;
  }
  return count;
}

std::int64_t CacheSnapshot::changes() const {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i] != cache_.block_bytes()[i]) ++count;
  }
  return count;
}

}  // namespace quire::test
