// SPDX-License-Identifier: Apache-2.0
// What a mask shows: to one query of one key, to a band of queries of a tile of keys, and the span of
// keys outside of which a band sees nothing.
#pragma once

#include "cuda/common/mask/mask_program.h"

namespace quire::cuda {

// A query as masks see it; positions are absolute.
struct QueryPlace {
  std::int64_t token;  // row of q, of the tree's bits and of key intervals
  std::int64_t position;
  std::int64_t cache_length;
};

// Neighbouring queries of one sequence.
struct QueryBand {
  std::int64_t first;  // positions
  std::int64_t last;   // inclusive
  std::int64_t cache_length;
  std::int64_t first_token;  // row of q of the first
};

struct KeySpan {
  std::int64_t first;
  std::int64_t last;  // exclusive

  __device__ bool is_empty() const { return first >= last; }
};

// What a band sees of a tile. `some` promises nothing: it may be none or all of it.
enum class TileStatus : std::uint8_t { none, some, all };

// Truth values of the nodes that no join has taken yet, the latest in the lowest bit.
class TruthStack {
 public:
  __device__ void push(bool value) { bits_ = bits_ << 1 | (value ? 1u : 0u); }
  __device__ void join(MaskKind kind) {
    const unsigned top = bits_ & 1u;
    bits_ >>= 1;
    bits_ = kind == MaskKind::all_of ? bits_ & (~1u | top) : bits_ | top;
  }
  __device__ bool top() const { return (bits_ & 1u) != 0; }

 private:
  unsigned bits_ = 0;
};
static_assert(MaskProgram::kMaxSteps / 2 + 1 <= 32, "a postfix program of n joins is n + 1 deep");

__device__ inline bool is_join(MaskKind kind) {
  return kind == MaskKind::all_of || kind == MaskKind::any_of;
}

__device__ inline bool shows_leaf(const MaskStep& step, const QueryPlace& query, std::int64_t key) {
  switch (step.kind) {
    case MaskKind::causal:
      return key <= query.position;
    case MaskKind::sliding_window:
      return query.position - key < step.size && key - query.position < step.size;
    case MaskKind::chunked:
      return query.position / step.size == key / step.size;
    case MaskKind::tree: {
      const std::int64_t column = key - query.cache_length;
      if (column < 0) return true;
      const TreeBits& tree = step.tree;
      return column < tree.columns && tree.data[query.token * tree.stride + column] != 0;
    }
    case MaskKind::key_intervals: {
      const KeyInterval own = step.intervals.of(query.token);
      return key >= own.first && key < own.end;
    }
    default:
      return true;
  }
}

__device__ inline bool shows(const MaskProgram& mask, const QueryPlace& query, std::int64_t key) {
  TruthStack stack;
  for (int i = 0; i < mask.num_steps; ++i) {
    const MaskStep& step = mask.steps[i];
    if (is_join(step.kind)) {
      stack.join(step.kind);
    } else {
      stack.push(shows_leaf(step, query, key));
    }
  }
  return stack.top();
}

struct TileTruth {
  bool may;   // some query may see some key
  bool must;  // every query sees every key
};

__device__ inline TileTruth classify_leaf(const MaskStep& step, const QueryBand& band,
                                          const KeySpan& keys) {
  const std::int64_t last_key = keys.last - 1;
  switch (step.kind) {
    case MaskKind::causal:
      return {keys.first <= band.last, last_key <= band.first};
    case MaskKind::sliding_window:
      return {band.first - last_key < step.size && keys.first - band.last < step.size,
              band.last - keys.first < step.size && last_key - band.first < step.size};
    case MaskKind::chunked: {
      const std::int64_t first_key_chunk = keys.first / step.size;
      const std::int64_t last_key_chunk = last_key / step.size;
      const std::int64_t first_chunk = band.first / step.size;
      const std::int64_t last_chunk = band.last / step.size;
      return {first_key_chunk <= last_chunk && first_chunk <= last_key_chunk,
              first_key_chunk == last_key_chunk && first_chunk == last_chunk &&
                  first_chunk == first_key_chunk};
    }
    case MaskKind::tree:
      return {true, keys.last <= band.cache_length};
    case MaskKind::key_intervals:
      return {true, false};
    default:
      return {true, true};
  }
}

__device__ inline TileStatus classify(const MaskProgram& mask, const QueryBand& band,
                                      const KeySpan& keys) {
  TruthStack may;
  TruthStack must;
  for (int i = 0; i < mask.num_steps; ++i) {
    const MaskStep& step = mask.steps[i];
    if (is_join(step.kind)) {
      may.join(step.kind);
      must.join(step.kind);
    } else {
      const TileTruth truth = classify_leaf(step, band, keys);
      may.push(truth.may);
      must.push(truth.must);
    }
  }
  return must.top() ? TileStatus::all : may.top() ? TileStatus::some : TileStatus::none;
}

// What the tokens of a band may see together by their own bounds.
__device__ inline KeySpan hull_of(const TokenIntervals& intervals, const QueryBand& band,
                                  std::int64_t num_keys) {
  KeySpan hull{num_keys, 0};
  for (std::int64_t i = 0; i <= band.last - band.first; ++i) {
    const KeyInterval own = intervals.of(band.first_token + i);
    const KeySpan seen{max(std::int64_t{0}, std::int64_t{own.first}),
                       min(num_keys, std::int64_t{own.end})};
    if (!seen.is_empty()) hull = {min(hull.first, seen.first), max(hull.last, seen.last)};
  }
  return hull;
}

__device__ inline KeySpan span_of_leaf(const MaskStep& step, const QueryBand& band,
                                       std::int64_t num_keys) {
  switch (step.kind) {
    case MaskKind::causal:
      return {0, min(num_keys, band.last + 1)};
    case MaskKind::sliding_window:
      return {max(std::int64_t{0}, band.first - step.size + 1),
              min(num_keys, band.last + step.size)};
    case MaskKind::chunked:
      return {max(std::int64_t{0}, band.first / step.size * step.size),
              min(num_keys, (band.last / step.size + 1) * step.size)};
    case MaskKind::key_intervals:
      return hull_of(step.intervals, band, num_keys);
    default:
      return {0, num_keys};
  }
}

__device__ inline KeySpan join_spans(MaskKind kind, const KeySpan& left, const KeySpan& right) {
  if (kind == MaskKind::all_of) return {max(left.first, right.first), min(left.last, right.last)};
  if (left.is_empty()) return right;
  if (right.is_empty()) return left;
  return {min(left.first, right.first), max(left.last, right.last)};
}

// Outside of it no query of the band sees a key; inside there may be gaps.
__device__ inline KeySpan visible_span(const MaskProgram& mask, const QueryBand& band,
                                       std::int64_t num_keys) {
  KeySpan stack[MaskProgram::kMaxSteps / 2 + 1];
  int depth = 0;
  for (int i = 0; i < mask.num_steps; ++i) {
    const MaskStep& step = mask.steps[i];
    if (is_join(step.kind)) {
      --depth;
      stack[depth - 1] = join_spans(step.kind, stack[depth - 1], stack[depth]);
    } else {
      stack[depth++] = span_of_leaf(step, band, num_keys);
    }
  }
  return stack[0];
}

}  // namespace quire::cuda
