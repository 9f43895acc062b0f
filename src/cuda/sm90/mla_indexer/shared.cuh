// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "cuda/common/pipeline/ring.cuh"
#include "cuda/sm90/mla_indexer/config.h"
#include "cuda/sm90/mla_indexer/params.h"
#include "cuda/sm90/mla_indexer/products.cuh"
#include "cuda/sm90/mla_indexer/split_schedule.h"
#include "cuda/sm90/mla_indexer/write_row.cuh"

namespace quire::cuda::sm90::mla_indexer {

// Key tiles [first_tile, end_tile) of a block of tokens.
template <int kTokens> struct IndexSplit {
  int first_token = -1;  // row of q; -1: no more splits
  int first_tile = 0;
  int end_tile = 0;
  int row_tiles = 0;  // of the block of tokens
  int stride = 0;     // of its sample (config.h)
  int slot = -1;      // where it is kept; -1: it has all keys of the block
  int continues = 0;
  int sequence = 0;
  int num_keys = 0;          // of the sequence
  int scored_rows = 0;       // bit t: token t asks for a selection
  int bounds[kTokens] = {};  // keys that a token sees; 0: it is not scored

  __device__ int tiles() const { return end_tile - first_tile; }
};

// Floats between the scales of two boxes: a copy begins on a multiple of 128 bytes.
QUIRE_HOST_DEVICE constexpr int box_scales(int box_rows) {
  return box_rows > 32 ? box_rows : 32;
}

// Which tile a stage or a slot holds, and which of its keys have a page.
struct TileMark {
  std::uint32_t code = 0;

  __device__ static TileMark of(int tile, unsigned groups) {
    return {static_cast<unsigned>(tile) * IndexConfig::kTileKeys | groups};
  }
  // Of a key of the tile.
  __device__ unsigned position(int key) const {
    constexpr unsigned kKeys = IndexConfig::kTileKeys - 1;
    return (code & ~kKeys) | static_cast<unsigned>(key);
  }
  __device__ bool is_mapped(int key) const { return (code >> (key / 16) & 1) != 0; }
  // The groups that both have, of the later tile.
  __device__ TileMark joined_with(TileMark other) const {
    return {max(code, other.code) & ((code & other.code) | ~kGroups)};
  }
  // All its keys have a page and are among the first `bound`.
  __device__ bool is_whole(int bound) const {
    return (code & kGroups) == kGroups &&
           static_cast<int>(position(0)) + IndexConfig::kTileKeys <= bound;
  }

 private:
  static constexpr unsigned kGroups = 15;
};

// Ranks of the scores of a tile.
template <int kTokens> struct ScoreSlot {
  alignas(8) std::uint32_t ranks[kTokens][IndexConfig::kTileKeys];
  TileMark mark;

  // Rows of two tokens lie in different banks for the lanes that write them.
  __device__ static int place(int token, int key) { return key ^ token % 2 * 16; }
};

// Keys of one row that may be among its best.
struct alignas(16) Pool {
  std::uint32_t ranks[IndexConfig::kPoolKeys];
  std::uint32_t positions[IndexConfig::kPoolKeys];

  __device__ std::uint64_t code(int i) const { return code_of(ranks[i], positions[i]); }
};

template <IndexConfig kConfig> struct IndexShared {
  static constexpr int kWindowWords = 1024;
  static constexpr int kQueries = 2;
  static constexpr int kSplits = 4;
  // A reader that met a stage only every other round could take an older round's parity for its own.
  static_assert(kConfig.stages % IndexConfig::kWarpgroups == 0, "a stage is one warpgroup's");
  static_assert(kConfig.score_slots % IndexConfig::kWarpgroups == 0, "a slot is one warpgroup's");
  static_assert(kConfig.score_slots % IndexConfig::kRoundTiles == 0, "a round has no seam");
  using Window = PositionWindow<kWindowWords>;
  using Select = SelectShared<1>;

  alignas(1024) std::byte tiles[kConfig.stages][kConfig.tile_bytes()];
  alignas(1024) std::byte queries[kQueries][kConfig.query_bytes()];
  // The same as f16, where products are; else nothing but alignment.
  alignas(1024) std::byte
      half_queries[kQueries][kConfig.multiplies_halves() ? 2 * kConfig.query_bytes() : 16];
  // Two for each stage, by turns of the ring: a scorer's arrival at `empty` does not wait for what it
  // has read out of shared memory and not yet used, so that a scale may be wanted a little longer than
  // its tile. What is read of a stage here is used before the same warps arrive at the stage again.
  alignas(128) float key_scales[2][kConfig.stages][4 * box_scales(16)];
  TileMark marks[2][kConfig.stages];
  alignas(16) float weights[kQueries][HeadSums<kConfig>::kWeightFloats];  // half of q_scale
  int query_tiles[kQueries];  // to score with them; -1: no more
  ScoreSlot<kConfig.tokens> slots[kConfig.score_slots];
  Pool pools[kConfig.tokens];
  Select selects[kConfig.tokens];
  Window windows[kConfig.tokens];
  unsigned counts[kConfig.tokens];                                    // keys in a pool
  RankLimits limits[kConfig.tokens][kConfig.chooser_threads() / 32];  // in a pool, by warps
  IndexSplit<kConfig.tokens> splits[kSplits];
  unsigned missed[kSplits][kConfig.tokens];  // 1: the sample promised too much
  RingBarriers<kConfig.stages> ring;
  RingBarriers<kQueries> query_ring;
  FullBarrier queries_landed[kQueries];  // as bytes that are still to be converted
  RingBarriers<kSplits> split_ring;
  RingBarriers<kConfig.score_slots> score_ring;

  // By one thread, before a fence_barrier_init and a barrier.
  __device__ void init() {
    ring.init(1, 4);  // a tile is one warpgroup's
    query_ring.init(32, IndexConfig::kScorers / 32);
    for (FullBarrier& landed : queries_landed) landed.init(1);
    split_ring.init(1, IndexConfig::kChoosers / 32 + IndexConfig::kWarpgroups);
    score_ring.init(HeadSums<kConfig>::kWriters, kConfig.tokens);  // a warp of each row reads it
    for (auto& split : missed) {
      for (unsigned& row : split) row = 0;
    }
  }
};

struct WholeRow {
  int token = 0;      // row of q
  int sequence = -1;  // none: no sequence has the token
  int bound = 0;      // keys that it sees

  __device__ int tiles() const { return (bound + kIndexTileKeys - 1) / kIndexTileKeys; }
};

// What one of `size` CTAs has of a row: every size-th tile.
struct RowShare {
  int rank = 0;
  int size = 1;
  WholeRow row{};
  int tiles = 0;  // of the row

  __device__ int own_tiles() const { return (tiles - rank + size - 1) / size; }
  __device__ int tile(int index) const { return rank + index * size; }
};

// What the tiles and the queries of one row go through (tile_loader.cuh, tile_loader.cuh), as in IndexShared.
template <IndexConfig kConfig> struct alignas(1024) RowStages {
  alignas(1024) std::byte tiles[kConfig.stages][kConfig.tile_bytes()];
  alignas(1024) std::byte queries[1][kConfig.query_bytes()];
  alignas(1024) std::byte
      half_queries[1][kConfig.multiplies_halves() ? 2 * kConfig.query_bytes() : 16];
  alignas(128) float key_scales[2][kConfig.stages][4 * box_scales(16)];
  TileMark marks[2][kConfig.stages];
  alignas(16) float weights[1][HeadSums<kConfig>::kWeightFloats];  // half of q_scale
  RingBarriers<kConfig.stages> ring;
  FullBarrier queries_full;
  FullBarrier queries_landed[1];

  __device__ void init_stages() {
    ring.init(1, 4);        // a tile is one warpgroup's
    queries_full.init(32);  // a warp copies the weights
    queries_landed[0].init(1);
  }
};

// To a warpgroup's next stage.
template <int kStages> __device__ inline void advance_by_turn(RingPosition<kStages>& at) {
  at.stage += IndexConfig::kWarpgroups;
  if (at.stage >= kStages) {
    at.stage -= kStages;
    at.phase ^= 1;
  }
}

}  // namespace quire::cuda::sm90::mla_indexer
