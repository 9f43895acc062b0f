// SPDX-License-Identifier: Apache-2.0
// Query rows that share their keys and fill the tiles of one product, and what they see of a chunk.
#pragma once

#include "cpu/attention/score_weights.h"
#include "cpu/simd/tile_bf16_amx.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

inline constexpr int kStripKeys = 32;

// Up to 32 query rows that share their keys: two A panels.
struct RowPair {
  static constexpr int kRows = 32;

  int panels() const { return count > AmxBf16::kRows ? 2 : 1; }
  int first_strip() const { return hull.begin / kStripKeys; }
  int last_strip() const { return (hull.end + kStripKeys - 1) / kStripKeys; }

  const QueryRow* rows;
  int count;
  std::int64_t state;      // of its first row
  bool* started;           // its outs hold numbers
  ScoreSpan hull;          // columns of the chunk that some row sees
  ScoreSpan common;        // that every row sees
  std::uint16_t* weights;  // two A panels, a workspace's chunk deep
};

// Up to 32 rows of a head from `first` on, without weights.
inline RowPair row_pair_at(const AttentionItem& item, const Workspace<AmxBf16>& space,
                           std::int64_t head, std::int64_t first, const KeyChunk& chunk) {
  RowPair pair{};
  pair.rows = item.rows + head * item.rows_per_head + first;
  const std::int64_t left = item.rows_per_head - first;
  pair.count = static_cast<int>(left < RowPair::kRows ? left : RowPair::kRows);
  pair.state = space.state(head, first);
  pair.started = &space.has_started(head, first);
  pair.hull = {.begin = chunk.depth, .end = 0};
  pair.common = {.begin = 0, .end = chunk.depth};
  for (int r = 0; r < pair.count; ++r) {
    const ScoreSpan span = span_of(item, pair.rows[r], chunk.first, chunk.depth);
    if (span.begin > pair.common.begin) pair.common.begin = span.begin;
    if (span.end < pair.common.end) pair.common.end = span.end;
    if (span.is_empty()) continue;
    if (span.begin < pair.hull.begin) pair.hull.begin = span.begin;
    if (span.end > pair.hull.end) pair.hull.end = span.end;
  }
  return pair;
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
