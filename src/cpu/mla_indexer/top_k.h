// SPDX-License-Identifier: Apache-2.0
// The exact top k of a stream of candidates, in memory that k bounds. Which k they are does not
// depend on where the stream was cut: (rank, position) orders all candidates, the greater rank
// first, then the lower position. Candidates come in rising positions, and stay in that order.
#pragma once

#include <cstdint>

#include "cpu/mla_indexer/indexer_item.h"

namespace quire::cpu {

class TopK {
 public:
  using KthRank = std::int32_t (*)(std::int32_t* ranks, std::int64_t count, std::int64_t k);

  // buffer [capacity(k)]; kth_rank: IndexerKernels::kth_rank
  TopK(ScoredKey* buffer, std::int64_t k, KthRank kth_rank)
      : buffer_(buffer), k_(k), kth_rank_(kth_rank) {}
  static constexpr std::int64_t capacity(std::int64_t k) { return num_keys(k) + num_ranks(k); }

  // Where a filter may append up to a chunk of survivors; add() then says how many they were.
  // A rank equal to the threshold loses.
  ScoredKey* end() const { return buffer_ + size_; }
  void add(int count);

  bool takes_all() const { return !has_threshold_; }
  std::int32_t threshold() const { return threshold_; }

  // Keeps the best k; returns how many there are.
  std::int64_t finish();
  ScoredKey* begin() const { return buffer_; }

 private:
  static constexpr std::int64_t kSlack = 16;

  // 2k and a chunk, and beside them their ranks alone, half as large, for the selection.
  static constexpr std::int64_t num_keys(std::int64_t k) { return 2 * k + kIndexerChunk + kSlack; }
  static constexpr std::int64_t num_ranks(std::int64_t k) { return (num_keys(k) + 1) / 2; }

  void shrink();

  ScoredKey* buffer_;
  std::int64_t k_;
  KthRank kth_rank_;
  std::int64_t size_ = 0;
  bool has_threshold_ = false;
  std::int32_t threshold_ = 0;
};

}  // namespace quire::cpu
