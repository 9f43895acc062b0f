// SPDX-License-Identifier: Apache-2.0
// The scorers: two warpgroups take the tiles of a piece by turns and put what may be among the best
// of a row into its pool. Between two checks of the pools' room each is on its own.
#pragma once

#include "cuda/hopper/mla_indexer/half_products.cuh"
#include "cuda/hopper/mla_indexer/pool.cuh"
#include "cuda/hopper/mla_indexer/products.cuh"
#include "cuda/hopper/tile/block.cuh"

namespace quire::cuda::hopper {

template <IndexConfig kConfig> class IndexScore {
 public:
  __device__ IndexScore(const IndexParams& params, IndexShared<kConfig>& shared)
      : params_(params), shared_(shared) {}

  __device__ void run() {
    for (std::uint32_t phase = 0;;) {
      shared_.piece_ring.wait_full({.phase = phase});
      __syncwarp();  // keeps reads behind the wait
      if (shared_.piece.first_token < 0) return;
      score_piece();
      phase = finish_piece() ^ 1;
      all().sync();  // the pools are read
    }
  }

 private:
  using Sums = HeadSums<kConfig>;
  static constexpr int kWarpgroups = IndexConfig::kWarpgroups;
  // In registers; of two products there would be too many.
  static constexpr bool kKeepsWeights = kConfig.products() == 1;

  __device__ void score_piece() {
    if (threadIdx.x < kConfig.tokens) {
      shared_.counts[threadIdx.x] = 0;
      shared_.to_beat[threadIdx.x] = kAbsentRank;
    }
    if constexpr (kConfig.multiplies_halves()) {
      convert_queries<kConfig>(shared_.queries, shared_.half_queries, static_cast<int>(threadIdx.x),
                               IndexConfig::kScorers);
      cutlass::arch::fence_view_async_shared();
    }
    load_weights();
    end_ = shared_.piece.bounds[Sums::token()] - key();
    all().sync();
    for (int first = 0; first < num_tiles(); first += kWarpgroups) {
      if (first % (kWarpgroups * IndexConfig::kCheckRounds) == 0) make_room();
      const int tile = first + warpgroup_in_block();
      if (tile < num_tiles()) score_tile(shared_.piece.first_tile + tile, tile);
    }
    seen_ += static_cast<unsigned>(num_tiles());
    all().sync();
  }

  // Tile `step` of the piece.
  __device__ void score_tile(int tile, int step) {
    const unsigned place = seen_ + static_cast<unsigned>(step);
    const RingPosition<kConfig.stages> at{.stage = static_cast<int>(place % kConfig.stages),
                                          .phase = place / kConfig.stages & 1};
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
      if constexpr (kConfig.multiplies_halves()) {
        multiply_halves<kConfig>(shared_.tiles[at.stage], shared_.half_queries, sums);
      } else {
        multiply_tile<kConfig>(shared_.tiles[at.stage], shared_.queries, product, sums);
      }
      if (product == kConfig.products() - 1 && threadIdx.x % 32 == 0) {
        shared_.ring.empty[at.stage].arrive();
      }
      Sums::add(sums, kKeepsWeights ? weights_ : Sums::own_weights(shared_.weights, product),
                product, parts);
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
    const bool is_good = is_valid && rank > shared_.to_beat[Sums::token()];
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
    const RowTeam<kConfig> team = row_team();
    RowPool<kConfig>(team, shared_, row_of(team)).drop_worst(params_.batch.top_k);
    all().sync();
    load_weights();  // not kept over the selection
  }

  // Returns the piece's phase of the ring.
  __device__ std::uint32_t finish_piece() {
    const std::uint32_t phase = shared_.piece.phase;
    const int slot = shared_.piece.slot;
    const RowTeam<kConfig> team = row_team();
    const int row = row_of(team);
    const int bound = shared_.piece.bounds[row];
    const int token = shared_.piece.first_token + row;
    if (slot >= 0 && threadIdx.x == 0) write_header(params_.pieces.headers[slot]);
    all().sync();
    if (threadIdx.x == 0) shared_.piece_ring.empty[0].arrive();  // queries and piece are read
    RowPool<kConfig> pool(team, shared_, row);
    if (slot >= 0) {
      const std::int64_t kept = std::int64_t{slot} * kConfig.tokens + row;
      pool.keep(params_.pieces.headers[slot], params_.pieces.codes + kept * IndexConfig::kPoolKeys);
    } else if (bound > 0) {
      pool.write_best(bound, params_.batch.top_k, params_.out + token * params_.out_stride);
    }
    return phase;
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

  __device__ void load_weights() {
    if constexpr (!kKeepsWeights) return;
    const float* weights = Sums::own_weights(shared_.weights, 0);
#pragma unroll
    for (int i = 0; i < Sums::kOwnWeights; ++i) weights_[i] = weights[i];
  }

  // Found anew where they are wanted: registers are short.
  __device__ int num_tiles() const {
    return shared_.piece.end_tile - shared_.piece.first_tile;
  }
  __device__ static Team<IndexConfig::kScorers> all() {
    return {static_cast<int>(threadIdx.x), 1};
  }
  __device__ static int warp() {
    return static_cast<int>(threadIdx.x / 32 % 4);
  }
  // A lane's key in a tile.
  __device__ static int key() {
    return 16 * warp() + Sums::key();
  }
  // Where the pools are worked on, a row is a team's. The thread's number is read so that the compiler
  // cannot know it from before: it would keep addresses for the selection over all of the scoring.
  __device__ static RowTeam<kConfig> row_team() {
    int thread = 0;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return {thread % RowTeam<kConfig>::kThreads, 2 + thread / RowTeam<kConfig>::kThreads};
  }
  __device__ static int row_of(const RowTeam<kConfig>& team) {
    return team.barrier - 2;
  }

  const IndexParams& params_;
  IndexShared<kConfig>& shared_;
  // A box of 16 keys leaves a gap behind its scales.
  const int scale_place_ = key() + (params_.pages.box_rows == 16 ? 16 * warp() : 0);
  float weights_[Sums::kOwnWeights];  // where they are kept
  int end_ = 0;                       // of what the lane's token sees, counted from key()
  unsigned seen_ = 0;                 // tiles of the pieces before
};

}  // namespace quire::cuda::hopper
