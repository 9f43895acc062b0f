// SPDX-License-Identifier: Apache-2.0
#include "cpu/mla_indexer/top_k.h"

#include <algorithm>

namespace quire::cpu {

void TopK::add(int count) {
  size_ += count;
  if (size_ >= 2 * k_) shrink();
}

// The k-th rank is found among the ranks alone; then one pass keeps what is better, and of its
// equals the first, in order.
void TopK::shrink() {
  if (size_ <= k_) return;
  auto* ranks = reinterpret_cast<std::int32_t*>(buffer_ + num_keys(k_));
  for (std::int64_t i = 0; i < size_; ++i) ranks[i] = buffer_[i].rank;
  const std::int32_t last = kth_rank_(ranks, size_, k_);
  std::int64_t equals =
      k_ - std::count_if(ranks, ranks + size_, [last](std::int32_t rank) { return rank > last; });
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < size_; ++i) {
    const ScoredKey key = buffer_[i];
    const bool is_equal = key.rank == last;
    const bool is_kept = key.rank > last || (is_equal && equals > 0);
    equals -= is_equal && is_kept ? 1 : 0;
    buffer_[kept] = key;  // kept ≤ i
    kept += is_kept ? 1 : 0;
  }
  size_ = k_;
  threshold_ = last;
  has_threshold_ = true;
}

std::int64_t TopK::finish() {
  shrink();
  return size_;
}

}  // namespace quire::cpu
