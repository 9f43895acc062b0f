// SPDX-License-Identifier: Apache-2.0
// How many of a row's best keys a part of it is likely to have. Nothing is taken on trust: a guess that
// turns out wrong costs time, never a key.
#pragma once

#include "cuda/sm90/mla_indexer/config.h"

namespace quire::cuda::sm90::mla_indexer {

// Of the keys of `sampled` tiles out of `tiles`, those that the bar is taken from. Of the best top_k the
// sample has `expected` on average; with three deviations more, one row in a thousand turns out to have
// too few as good, and is scored again.
__device__ inline int keys_above_bar(int sampled, int tiles, int top_k) {
  const float expected =
      static_cast<float>(top_k) * static_cast<float>(sampled) / static_cast<float>(tiles);
  const float root = 1.5f + sqrtf(2.25f + expected);
  return static_cast<int>(root * root) + 1;
}

// Of `count` keys of a piece, those that the row's best are sought among first: somewhat more than its
// share; all where a merge can hold what the row's pieces have.
__device__ inline int keys_of_head(int count, int tiles, int row_tiles, int top_k) {
  const float share = static_cast<float>(tiles) / static_cast<float>(row_tiles);
  if (static_cast<float>(count) <= share * IndexConfig::kMergeCodes) return count;
  const float expected = share * static_cast<float>(top_k);
  return min(count, static_cast<int>(expected + 4.0f * sqrtf(expected)) + 8);
}

}  // namespace quire::cuda::sm90::mla_indexer
