// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "cuda/hopper/mla_indexer/head_sums.cuh"
#include "cuda/hopper/mla_indexer/params.h"
#include "cuda/hopper/mla_indexer/write_row.cuh"
#include "cuda/hopper/tile/ring.cuh"

namespace quire::cuda::hopper {

// Key tiles [first_tile, end_tile) of a block of tokens.
template <int kTokens> struct IndexPiece {
  int first_token = -1;  // row of q; -1: no more pieces
  int first_tile = 0;
  int end_tile = 0;
  int slot = -1;  // where it is kept; -1: it has all keys of the block
  int continues = 0;
  std::uint32_t phase = 0;   // of the ring of pieces
  int bounds[kTokens] = {};  // keys that a token sees; 0: it is not scored
};

// Floats between the scales of two boxes: a copy begins on a multiple of 128 bytes.
QUIRE_HOST_DEVICE constexpr int box_scales(int box_rows) {
  return box_rows > 32 ? box_rows : 32;
}

// Keys of one row that may be among its best.
struct Pool {
  std::uint32_t ranks[IndexConfig::kPoolKeys];
  std::uint32_t positions[IndexConfig::kPoolKeys];

  __device__ std::uint64_t code(int i) const { return code_of(ranks[i], positions[i]); }
};

// At most half of a pool changes places when its worst keys are dropped.
inline constexpr int kPoolMoves = IndexConfig::kPoolKeys / 2;

template <IndexConfig kConfig> struct IndexShared {
  static constexpr int kWindowWords = 1024;
  static_assert(kConfig.stages % IndexConfig::kWarpgroups == 0, "a stage is one warpgroup's");
  using Window = PositionWindow<kWindowWords>;

  alignas(1024) std::byte tiles[kConfig.stages][kConfig.tile_bytes()];
  alignas(1024) std::byte queries[kConfig.query_bytes()];
  // The same as f16, where products are; else nothing but alignment.
  alignas(1024) std::byte
      half_queries[kConfig.multiplies_halves() ? 2 * kConfig.query_bytes() : 16];
  // Two for each stage, by turns of the ring: a scorer's arrival at `empty` does not wait for what it
  // has read out of shared memory and not yet used, so that a scale may be wanted a little longer than
  // its tile. What is read of a stage here is used before the same warps arrive at the stage again.
  alignas(128) float key_scales[2][kConfig.stages][4 * box_scales(16)];
  std::uint32_t mapped[2][kConfig.stages];                      // bit g: keys 16g … have a page
  alignas(16) float weights[HeadSums<kConfig>::kWeightFloats];  // half of q_scale
  Pool pools[kConfig.tokens];
  // Each pair is used by turns.
  union Counting {
    SelectShared select;
    std::uint16_t gaps[kPoolMoves];  // left by the worst keys of a pool
  } counting[kConfig.tokens];
  union Placing {
    Window window;
    std::uint16_t movers[kPoolMoves];  // the keys that fill the gaps
  } placing[kConfig.tokens];
  unsigned counts[kConfig.tokens];        // keys in a pool
  unsigned num_moves[kConfig.tokens][2];  // gaps, movers
  std::uint32_t to_beat[kConfig.tokens];  // a rank that is not above it is out
  IndexPiece<kConfig.tokens> piece;
  RingBarriers<kConfig.stages> ring;
  RingBarriers<1> piece_ring;

  // By one thread, before a fence_barrier_init and a barrier.
  __device__ void init() {
    ring.init(1, 4);  // a tile is one warpgroup's
    piece_ring.init(1, 1);
  }
};

}  // namespace quire::cuda::hopper
