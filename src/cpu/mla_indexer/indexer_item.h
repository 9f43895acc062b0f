// SPDX-License-Identifier: Apache-2.0
// What the indexer's kernels are asked: plain data, made by the driver.
//   score(i, t) = k_scale(t) · Σ_h max(0, q(i, h) · k(t)) · q_scale(i, h)
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace quire::cpu {

inline constexpr int kIndexerChunk = 256;  // keys scored at a time

struct IndexerShape {
  std::int64_t tokens;  // of a group, scored against the same keys
  std::int64_t heads;
  std::int64_t head_dim;
};

struct IndexerQuery {
  const std::byte* q;        // e4m3 [heads, head_dim]
  std::int64_t head_stride;  // bytes
  const float* scales;       // [heads]
  std::int64_t scale_stride;
};

// Keys of one chunk. rows and scales: null where the key has no page.
struct IndexerKeys {
  const std::byte* rows[kIndexerChunk];    // e4m3 [head_dim]
  const std::byte* scales[kIndexerChunk];  // f32; null with a row: 0
  int count;
  bool has_holes;  // some rows are null
};

// A key and its score as a number that orders like it: greater is better, NaN lowest.
struct ScoredKey {
  std::int32_t rank;
  std::uint32_t position;
};

// The score that has this rank (rank_of in filter_keys.h): -0 has become +0, NaN any NaN.
inline float score_of_rank(std::int32_t rank) {
  return std::bit_cast<float>(rank ^ ((rank >> 31) & 0x7fffffff));
}

struct CandidateFilter {
  std::uint32_t first_position;  // of scores[0]
  int count;
  bool takes_all;           // no threshold yet
  std::int32_t threshold;   // ranks must be greater
  const IndexerKeys* keys;  // keys without a row are left out
};

}  // namespace quire::cpu
