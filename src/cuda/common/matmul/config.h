// SPDX-License-Identifier: Apache-2.0
// A compiled kernel of fused_qkv_matmul on Hopper, as a value.
#pragma once

#include <cstdint>

#include "cuda/common/pipeline/tile_walk.h"
#include "quire/dtype.h"

namespace quire::cuda {

// What the blocks of a cluster have in common and fetch once for all of them.
enum class Shared : std::uint8_t {
  weight,  // they stand one below the other: other tokens, the same columns
  tokens,  // they stand side by side: the same tokens, other columns
};

// What the scales of an fp8 product multiply.
enum class Scaling : std::uint8_t {
  none,    // nothing: bf16, f16
  rows,    // finished sums
  blocks,  // the sums over every 128 of K, and finished ones
};

// What K and V columns become.
enum class KvRows : std::uint8_t {
  numbers,  // of a float type, each by itself
  codes,    // of 8 bits, with scales
};

// A block computes 64 · consumers tokens × tile_n columns, 64 tokens per consumer warpgroup.
struct TileConfig {
  DType dtype = DType::bf16;  // of x and the weight
  Scaling scaling = Scaling::none;
  int tile_n = 256;   // a multiple of 32
  int consumers = 2;  // warpgroups
  int stages = 4;     // of (kept_tokens + tile_n) × 128 bytes
  int cluster = 2;    // blocks
  Shared shared = Shared::weight;
  // Rows of x in a stage. Fewer than tokens() where that many tokens never come: the products of
  // the rows behind them read whatever follows, and are not stored.
  int kept_tokens = 128;
  int blocks_per_sm = 1;
  // Blocks of K whose weights are sent for in a row, before their tokens. Two are 256 bytes of every weight row.
  int blocks_sent = 1;
  // The tensor core keeps 13 bits against an fp8 sum, so sums are added up in fp32 outside of it:
  // after every block of K that has scales of its own, else after this many blocks of 128. Four
  // times as many adds cost up to a third of the time of many tokens; the error of four blocks is
  // a fifth of the rounding of a bf16 output. 0: never, for callers who allow it.
  int chained_blocks = 4;

  KvRows kv_rows = KvRows::numbers;
  // Columns of the tiles that a launch may end with, so that all clusters end at about the same time; 0: it has none.
  // Blocks of a cluster share the weight then.
  int tail_n = 0;

  static constexpr int kProducerRegisters = 40;
  static constexpr int kConsumerRegisters = 232;
  constexpr int tokens() const { return 64 * consumers; }
  constexpr int threads() const { return 128 * (1 + consumers); }
  constexpr int groups() const { return tile_n / 32; }
  // Blocks among which the copies of a weight tile, and of a token tile, are divided.
  constexpr int weight_sharers() const { return shared == Shared::weight ? cluster : 1; }
  constexpr int token_sharers() const { return shared == Shared::tokens ? cluster : 1; }
  // Groups of 32 weight rows that one copy brings of a tile of so many columns: a sharer's part, unless the groups
  // are odd.
  constexpr int box_groups(int columns) const {
    const int groups = columns / 32;
    return groups % weight_sharers() == 0 ? groups / weight_sharers() : 1;
  }
  // Blocks side by side, two by two, find the scale of columns that both have a part of.
  constexpr bool pairs_granules() const { return kv_rows == KvRows::codes && token_sharers() > 1; }
  constexpr bool has_scales() const { return scaling != Scaling::none; }
  // Whether sums have registers beside those that the tensor core adds to.
  constexpr bool promotes() const { return has_scales() && chained_blocks > 0; }
  constexpr Scaling promoted_scaling() const { return promotes() ? scaling : Scaling::none; }
  constexpr bool has_tail() const { return tail_n > 0; }
  // Stored16Bit tiles computed in the time of a whole one.
  constexpr int tail_share() const { return tile_n / tail_n; }
  // Block scales: parts of the columns multiplied at a time, into registers beside those of the sums;
  // sets of such registers. The largest tile has room for one.
  constexpr int parts() const { return tile_n > 96 || blocks_per_sm > 1 ? 2 : 1; }
  constexpr int part_n() const { return tile_n / parts(); }
  constexpr int part_sets() const { return tile_n > 192 ? 1 : 2; }
  // Blocks of K multiplied in a row without a gap. (Products in flight over the end of a loop make the
  // compiler wait for each of them.)
  constexpr int unrolled_blocks() const { return 8; }
  // Warps beside the loading one that bring the scales of each block of K, a thread for two tokens; the
  // others of the three look up addresses.
  constexpr int scale_warps() const { return scaling == Scaling::blocks ? consumers : 0; }
  constexpr int address_threads() const { return 32 * (3 - scale_warps()); }
  // Tiles whose addresses, bias and scales are kept. A block has one small tile as a rule.
  constexpr int kv_stages() const { return tile_n >= 128 ? 2 : 1; }
  // Large tiles need more registers than an even share.
  constexpr bool moves_registers() const {
    return consumers > 1 && tile_n >= (scaling == Scaling::blocks ? 96 : 128);
  }
};

// One of kParts parts of a tile, each a few groups of 32 columns.
template <int kPart, int kParts> struct TilePart {
  static constexpr int first(int groups) { return groups * kPart / kParts; }
  static constexpr int end(int groups) { return groups * (kPart + 1) / kParts; }
  static constexpr bool kIsLast = kPart + 1 == kParts;
};

using WholeTile = TilePart<0, 1>;

// All of a tile of kColumns columns.
template <int kColumns> struct TailTile {
  static constexpr int first(int) { return 0; }
  static constexpr int end(int) { return kColumns / 32; }
  static constexpr bool kIsLast = true;
};

// The groups of a tile that are stored at once where only half of them can wait, and Part of the others.
struct ImmediateHalf {
  static constexpr int first(int) { return 0; }
  static constexpr int end(int groups) { return groups - groups / 2; }
  static constexpr bool kIsLast = false;
};
template <typename Part> struct DeferredHalf {
  static constexpr int first(int groups) {
    return ImmediateHalf::end(groups) + Part::first(groups / 2);
  }
  static constexpr int end(int groups) {
    return ImmediateHalf::end(groups) + Part::end(groups / 2);
  }
  static constexpr bool kIsLast = Part::kIsLast;
};

// Tiles narrower than the others, for the end of a launch: whole ones alone would leave some clusters idle in the
// last round.
//
//   columns of the grid   to its right
//   whole                 whole
//   whole                 narrow         the last `rows` rows

struct TailTiles {
  int rows = 0;
  int columns = 0;
  int whole_columns = 0;  // to the right of the grid, above
};

// Which narrow tile a cluster computes when it has had its share of `whole` tiles (cluster, cluster + clusters, …)
// and `had` narrow ones. The clusters without a tile in the last round of whole ones compute `meanwhile` each, then
// every cluster one in each round.
QUIRE_HOST_DEVICE inline int tail_tile(int whole, int clusters, int cluster, int had,
                                       int meanwhile) {
  const int busy = whole % clusters;  // in that round; 0: all of them
  const int idle = busy == 0 ? 0 : clusters - busy;
  const bool was_idle = idle > 0 && cluster >= busy;
  if (was_idle && had < meanwhile) return cluster - busy + had * idle;
  return meanwhile * idle + cluster + (had - (was_idle ? meanwhile : 0)) * clusters;
}

}  // namespace quire::cuda
