// SPDX-License-Identifier: Apache-2.0
// The exact top k of a stream of candidates, in memory that k bounds. Which k they are does not
// depend on the order of the stream or on where it was cut: (rank, position) orders all candidates,
// the greater rank first, then the lower position.
#pragma once

#include <cstdint>

#include "cpu/mla_indexer/indexer_item.h"

namespace quire::cpu {

class TopK {
 public:
  // Room for 2k and a chunk; see capacity().
  TopK(ScoredKey* buffer, std::int64_t k) : buffer_(buffer), k_(k) {}
  static std::int64_t capacity(std::int64_t k) { return 2 * k + kIndexerChunk + kSlack; }

  // Where a filter may append up to a chunk of survivors; add() then says how many they were.
  // Positions of one stream rise, so a rank equal to the threshold loses.
  ScoredKey* end() const { return buffer_ + size_; }
  void add(int count);

  bool takes_all() const { return !has_threshold_; }
  std::int32_t threshold() const { return threshold_; }

  // Keeps the best k; returns how many there are.
  std::int64_t finish();
  ScoredKey* begin() const { return buffer_; }

 private:
  static constexpr std::int64_t kSlack = 16;

  void shrink();

  ScoredKey* buffer_;
  std::int64_t k_;
  std::int64_t size_ = 0;
  bool has_threshold_ = false;
  std::int32_t threshold_ = 0;
};

}  // namespace quire::cpu
