// SPDX-License-Identifier: Apache-2.0
// A mask as the drivers use it: for each token the range of keys outside which it sees none, and,
// where that range is not the whole truth (trees, unions), a function that decides key by key.
#pragma once

#include <cstdint>

#include "cpu/attention/item.h"
#include "quire/mask.h"

namespace quire::cpu {

struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  bool is_empty() const { return begin >= end; }
};

class MaskRanges {
 public:
  // Keeps a reference to the mask.
  explicit MaskRanges(const Mask& mask);

  // Keys of [0, num_keys) that the token, a row of q, may see from `position`.
  KeyRange range(std::int64_t token, std::int64_t position, std::int64_t num_keys) const;
  // Whether range() is exactly what a token sees.
  bool is_exact() const { return is_exact_; }

  // What a MaskFunction gets: the cached tokens of the item's sequence are part of it.
  struct State {
    const MaskRanges* ranges;
    std::int64_t cache_length;
  };
  static void fill_visible(const void* state, const QueryRow& row, std::int64_t first, int count,
                           std::uint8_t* visible);

 private:
  struct Query {
    std::int64_t token;
    std::int64_t position;
    std::int64_t num_keys;
  };
  KeyRange node_range(std::int32_t index, const Query& query) const;
  bool node_shows(std::int32_t index, const State& state, const QueryRow& row,
                  std::int64_t key) const;

  const Mask& mask_;
  bool is_exact_ = true;
};

}  // namespace quire::cpu
