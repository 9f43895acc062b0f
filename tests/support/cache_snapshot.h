// SPDX-License-Identifier: Apache-2.0
// Which bytes of a cache an op may change: takes a copy before the op, compares after it.
//
//   CacheSnapshot before(cache);
//   before.allow_new_tokens(/*layer=*/1, KvSide::key);
//   op(…);
//   EXPECT_EQ(before.unexpected_changes(), 0);
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "quire/ops/rms_norm.h"
#include "support/cache_builder.h"

namespace quire::test {

class CacheSnapshot {
 public:
  explicit CacheSnapshot(const TestCache& cache)
      : cache_(cache),
        blocks_(cache.block_bytes()),
        scales_(cache.scale_bytes()),
        allowed_(blocks_.size(), false) {}

  // Bytes [first, last) of one row; the whole row by default.
  void allow_row(std::int64_t layer, KvSide side, std::int64_t sequence, std::int64_t head,
                 std::int64_t token, std::int64_t first = 0, std::int64_t last = -1);
  // The same bytes in the rows of all new tokens that have a page.
  void allow_new_tokens(std::int64_t layer, KvSide side, std::int64_t first = 0,
                        std::int64_t last = -1);

  // Bytes of the blocks that changed outside what was allowed.
  std::int64_t unexpected_changes() const;
  // Bytes of the blocks that changed at all.
  std::int64_t changes() const;
  bool scales_changed() const { return cache_.scale_bytes() != scales_; }

 private:
  const TestCache& cache_;
  std::vector<std::byte> blocks_;
  std::vector<std::byte> scales_;
  std::vector<bool> allowed_;
};

}  // namespace quire::test
