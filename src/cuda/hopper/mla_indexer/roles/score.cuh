// SPDX-License-Identifier: Apache-2.0
// The scorers: two warpgroups take the tiles of a piece by turns and put what may be among the best
// of a row into its pool. Between two checks of the pools' room each is on its own.
#pragma once

#include "cuda/hopper/mla_indexer/head_sums.cuh"
#include "cuda/hopper/mla_indexer/pool.cuh"
#include "cuda/hopper/mla_indexer/products.cuh"
#include "cuda/hopper/tile/block.cuh"

namespace quire::cuda::hopper {

template <IndexConfig kConfig> class IndexScore {
 public:
  __device__ IndexScore(const IndexParams& params, IndexShared<kConfig>& shared)
      : params_(params), shared_(shared) {}

  __device__ void run() {
    for (;; piece_at_.advance()) {
      shared_.piece_ring.wait_full(piece_at_);
      __syncwarp();  // keeps reads behind the wait
      if (shared_.piece.first_token < 0) return;
      score_piece();
      all().sync();  // the pools are read
    }
  }

 private:
  using Sums = HeadSums<kConfig>;
  static constexpr int kWarpgroups = IndexConfig::kWarpgroups;

  __device__ void score_piece() {
    if (threadIdx.x < kConfig.tokens) {
      shared_.counts[threadIdx.x] = 0;
      shared_.to_beat[threadIdx.x] = kAbsentRank;
    }
    Sums::load_weights(shared_.weights, weights_);
    const int tiles = shared_.piece.end_tile - shared_.piece.first_tile;
    end_ = shared_.piece.bounds[Sums::token()] - key();
    to_beat_ = kAbsentRank;
    all().sync();
    for (int first = 0; first < tiles; first += kWarpgroups) {
      if (first % (kWarpgroups * IndexConfig::kCheckRounds) == 0) make_room();
      const int tile = first + warpgroup_in_block();
      if (tile < tiles) score_tile(shared_.piece.first_tile + tile, tile);
    }
    advance(tiles);
    all().sync();
    finish_piece();
  }

  // Tile `step` of the piece.
  __device__ void score_tile(int tile, int step) {
    RingPosition<kConfig.stages> at = at_;
    const int place = at.stage + step;
    at.stage = place % kConfig.stages;
    at.phase ^= static_cast<std::uint32_t>(place / kConfig.stages) & 1;
    shared_.ring.wait_full(at);
    __syncwarp();  // the barrier's wait alone does not keep the compiler from reading before it
    float scales[Sums::kResults];
#pragma unroll
    for (int i = 0; i < Sums::kResults; ++i) {
      scales[i] = shared_.key_scales[at.phase][at.stage][scale_place_ + 8 * i];
    }
    const bool is_mapped = (shared_.mapped[at.phase][at.stage] >> warp() & 1) != 0;
    float parts[Sums::kParts][2] = {};
#pragma unroll
    for (int product = 0; product < kConfig.products(); ++product) {
      float sums[kConfig.product_columns() / 2];
      multiply_tile<kConfig>(shared_.tiles[at.stage], shared_.queries, product, sums);
      if (product == kConfig.products() - 1 && threadIdx.x % 32 == 0) {
        shared_.ring.empty[at.stage].arrive();
      }
      Sums::add(sums, weights_, product, parts);
    }
    float results[Sums::kResults];
    Sums::exchange(parts, results);
#pragma unroll
    for (int i = 0; i < Sums::kResults; ++i) {
      const int first = tile * kIndexTileKeys + 8 * i;
      const bool is_valid = is_mapped && Sums::is_first() && first < end_;
      offer(rank_of(results[i] * scales[i]), first, is_valid);
    }
  }

  // Into the pool of the lane's token, if it may be among the best.
  __device__ void offer(std::uint32_t rank, int first, bool is_valid) {
    const bool is_good = is_valid && rank > to_beat_;
    const unsigned good = __ballot_sync(kWholeWarp, is_good);
    if (good == 0) return;
    const unsigned lane = threadIdx.x % 32;
    const unsigned own = good & token_lanes();
    const int leader = __ffs(static_cast<int>(own)) - 1;
    unsigned base = 0;
    if (static_cast<int>(lane) == leader) {
      base = atomicAdd(&shared_.counts[Sums::token()], static_cast<unsigned>(__popc(own)));
    }
    base = __shfl_sync(kWholeWarp, base, leader & 31);
    if (!is_good) return;
    const unsigned slot = base + __popc(own & ((1u << lane) - 1u));
    Pool& pool = shared_.pools[Sums::token()];
    pool.ranks[slot] = rank;
    pool.positions[slot] = static_cast<unsigned>(first + key());
  }

  // Lanes of the same token as this one.
  __device__ static unsigned token_lanes() {
    if constexpr (kConfig.tokens == 1) return kWholeWarp;
    if constexpr (kConfig.tokens == 2) return 0x33333333u << (2 * Sums::token());
    return 0x11111111u << Sums::token();
  }

  // All keys before this round are in the pools, none behind: a later key of the same rank as the
  // worst that stays is out.
  __device__ void make_room() {
    const bool is_full = shared_.counts[Sums::token()] > IndexConfig::kPoolLimit;
    if (!all().any(is_full)) return;
    RowPool<kConfig>(row_team(), shared_, row()).drop_worst(params_.batch.top_k);
    all().sync();
    to_beat_ = shared_.to_beat[Sums::token()];
  }

  __device__ void finish_piece() {
    const int slot = shared_.piece.slot;
    const int row = IndexScore::row();
    const int bound = shared_.piece.bounds[row];
    const int token = shared_.piece.first_token + row;
    if (slot >= 0 && threadIdx.x == 0) write_header(params_.pieces.headers[slot]);
    all().sync();
    if (threadIdx.x == 0) shared_.piece_ring.empty[0].arrive();  // queries and piece are read
    RowPool<kConfig> pool(row_team(), shared_, row);
    if (slot >= 0) {
      const std::int64_t kept = std::int64_t{slot} * kConfig.tokens + row;
      pool.keep(params_.pieces.headers[slot],
                params_.pieces.codes + kept * IndexConfig::kPoolKeys);
    } else if (bound > 0) {
      pool.write_best(bound, params_.batch.top_k, params_.out + token * params_.out_stride);
    }
  }

  __device__ void write_header(PieceHeader& header) const {
    const IndexPiece<kConfig.tokens>& piece = shared_.piece;
    header.first_token = piece.first_token;
    header.first_tile = piece.first_tile;
    header.end_tile = piece.end_tile;
    header.continues = piece.continues;
    int scored = 0;
#pragma unroll
    for (int t = 0; t < kConfig.tokens; ++t) scored |= (piece.bounds[t] > 0 ? 1 : 0) << t;
    header.scored_rows = scored;
  }

  __device__ void advance(int tiles) {
    const int place = at_.stage + tiles;
    at_.stage = place % kConfig.stages;
    at_.phase ^= static_cast<std::uint32_t>(place / kConfig.stages) & 1;
  }

  // Found anew where they are wanted: registers are short.
  __device__ static Team<IndexConfig::kScorers> all() { return {static_cast<int>(threadIdx.x), 1}; }
  __device__ static int warp() { return static_cast<int>(threadIdx.x / 32 % 4); }
  // A lane's key in a tile.
  __device__ static int key() { return 16 * warp() + Sums::key(); }
  // Where the pools are worked on, a row is a team's.
  __device__ static int row() {
    return static_cast<int>(threadIdx.x) / RowTeam<kConfig>::kThreads;
  }
  __device__ static RowTeam<kConfig> row_team() {
    return {static_cast<int>(threadIdx.x) % RowTeam<kConfig>::kThreads, 2 + row()};
  }

  const IndexParams& params_;
  IndexShared<kConfig>& shared_;
  // A box of 16 keys leaves a gap behind its scales.
  const int scale_place_ = key() + (params_.pages.box_rows == 16 ? 16 * warp() : 0);
  float weights_[Sums::kWeights];
  int end_ = 0;  // of what the lane's token sees, counted from key()
  std::uint32_t to_beat_ = 0;
  RingPosition<kConfig.stages> at_;  // of the piece's first tile
  RingPosition<1> piece_at_;
};

}  // namespace quire::cuda::hopper
