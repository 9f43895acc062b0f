// SPDX-License-Identifier: Apache-2.0
#include "cpu/mla_indexer/top_k.h"

#include <algorithm>

namespace quire::cpu {
namespace {

bool is_better(const ScoredKey& left, const ScoredKey& right) {
  return left.rank != right.rank ? left.rank > right.rank : left.position < right.position;
}

}  // namespace

void TopK::add(int count) {
  size_ += count;
  if (size_ >= 2 * k_) shrink();
}

void TopK::shrink() {
  if (size_ <= k_) return;
  std::nth_element(buffer_, buffer_ + k_ - 1, buffer_ + size_, is_better);
  size_ = k_;
  threshold_ = buffer_[k_ - 1].rank;
  has_threshold_ = true;
}

std::int64_t TopK::finish() {
  shrink();
  return size_;
}

}  // namespace quire::cpu
