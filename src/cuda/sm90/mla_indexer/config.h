// SPDX-License-Identifier: Apache-2.0
// A compiled indexer kernel, as a value.
#pragma once

#include "quire/host_device.h"

namespace quire::cuda::sm90::mla_indexer {

// A CTA scores `tokens` tokens × `heads` heads of one sequence against 64 keys at a time in
// each of three warpgroups. Four warps choose among the scores, one loads.
struct IndexConfig {
  int heads = 64;
  int tokens = 1;
  int dims = 128;  // 64 or 128
  int stages = 6;  // of 64 keys
  // Tiles of scores that may wait for the choosers: a row's end, which takes them as long as forty
  // tiles take the scorers, should not hold those up. Whole rounds of the choosers.
  int score_slots = 48;

  static constexpr int kTileKeys = 64;
  static constexpr int kHeadGroup = 4;  // of a token, between those of the other (products.cuh)
  static constexpr int kWarpgroups = 3;
  static constexpr int kScorers = 128 * kWarpgroups;  // threads
  static constexpr int kChoosers = 128;
  static constexpr int kThreads = kScorers + kChoosers + 128;
  // Keys kept of a row. Where more than top_k are, the worst are dropped as soon as the keys of
  // another kRoundTiles tiles might not find room. A warp that looks does not see what others of the
  // same round are about to put in: hence twice.
  static constexpr int kPoolKeys = 4096;
  static constexpr int kRoundTiles = 8;
  static constexpr int kPoolLimit = kPoolKeys - 2 * kRoundTiles * kTileKeys;
  // The first that are scored of a row with more keys than a pool may hold: evenly spread, they tell
  // which ranks are worth keeping (config.h).
  static constexpr int kSampleTiles = 48;
  static_assert(kSampleTiles * kTileKeys <= kPoolLimit);
  static constexpr int kLeastStride = 8;  // more of a sample costs more than it tells
  static constexpr int kMaxTopK = 2048;
  // Codes of a row that a merge holds at once, in splits that do not fill their places (finish.cu).
  static constexpr int kMergeCodes = 12288;
  static constexpr int kMaxTokens = 2;

  constexpr int columns() const { return tokens * heads; }  // of a product, at most 128
  // Fewer heads, or columns, would not average out what fp8 instructions cut off (products.cuh): the
  // selection would differ from one by fp32 scores more than their own rounding allows.
  constexpr bool multiplies_halves() const { return heads < 16 || (dims == 64 && heads < 64); }
  constexpr int query_bytes() const { return columns() * dims; }
  constexpr int tile_bytes() const { return kTileKeys * dims; }
  // Twenty warps start with 96 registers each. Where sums and weights of many columns need more, the
  // other roles give some away.
  constexpr bool shares_registers() const { return columns() > 64; }
  static constexpr int kScorerRegisters = 112;
  static constexpr int kChooserRegisters = 80;
  static constexpr int kLoaderRegisters = 64;
  static_assert(3 * kScorerRegisters + kChooserRegisters + kLoaderRegisters <= 5 * 96);
  constexpr int chooser_threads() const { return kChoosers / tokens; }  // of a row
};

inline constexpr int kMaxParts = 256;  // CTAs whose splits a merge can list

// The order in which the tiles of a split are scored. Of a long one, every stride-th comes first: a
// sample that all of the split is in, whatever changes along it. The rank of the sample's j-th best key
// then keeps all but a few keys out of the pool, and nothing is scored twice for it.

// 0: the split has room in a pool, or must do without.
QUIRE_HOST_DEVICE inline int sample_stride(int tiles) {
  if (tiles * IndexConfig::kTileKeys <= IndexConfig::kPoolLimit) return 0;
  const int least = (tiles + IndexConfig::kSampleTiles - 1) / IndexConfig::kSampleTiles;
  return least > IndexConfig::kLeastStride ? least : IndexConfig::kLeastStride;
}

QUIRE_HOST_DEVICE inline int sample_tiles(int tiles, int stride) {
  return stride == 0 ? 0 : (tiles + stride - 1) / stride;
}

// The index-th tile.
QUIRE_HOST_DEVICE inline int tile_in_order(int index, int tiles, int stride) {
  if (stride == 0) return index;
  const int sampled = sample_tiles(tiles, stride);
  if (index < sampled) return index * stride;
  const int rest = index - sampled;
  return rest / (stride - 1) * stride + 1 + rest % (stride - 1);
}

// Every compiled indexer kernel: the files in variants/ by numbers of heads, a row of plan_index.h for the
// planner.

// For sequences with one new token: bound by memory, so that most of shared memory is stages.
template <int kHeads, int kDims> struct IndexOne {
  static constexpr IndexConfig kConfig{
      .heads = kHeads, .tokens = 1, .dims = kDims, .stages = kDims == 128 ? 15 : 24};
};
// Two tokens read a key tile together.
template <int kHeads, int kDims> struct IndexTwo {
  static constexpr IndexConfig kConfig{
      .heads = kHeads, .tokens = 2, .dims = kDims, .stages = kDims == 128 ? 9 : 15};
};

// A whole row to a cluster (cluster/kernel.cuh): what stages leave of shared memory is for its ranks.
inline constexpr int kMaxClusterKeys = 32768 + 128;
template <int kHeads, int kDims> struct IndexRow {
  static constexpr IndexConfig kConfig{
      .heads = kHeads, .tokens = 1, .dims = kDims, .stages = kDims == 128 ? 9 : 15};
};

}  // namespace quire::cuda::sm90::mla_indexer
