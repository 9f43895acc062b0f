// SPDX-License-Identifier: Apache-2.0
// The choosers: a team for each token reads the scores, puts what may be among the best of its row into
// a pool, and turns the pool into the result while the next piece is being scored.
#pragma once

#include "cuda/hopper/mla_indexer/expected_keys.cuh"
#include "cuda/hopper/mla_indexer/pool.cuh"
#include "cuda/hopper/mla_indexer/sample.h"

namespace quire::cuda::hopper {

template <IndexConfig kConfig> class IndexChoose {
 public:
  __device__ IndexChoose(const IndexParams& params, IndexShared<kConfig>& shared)
      : params_(params), shared_(shared) {
    at_.stage = next_;
  }

  __device__ void run() {
    for (RingPosition<IndexShared<kConfig>::kPieces> at;; at.advance()) {
      shared_.piece_ring.wait_full(at);
      __syncwarp();  // keeps reads behind the wait
      const Piece& piece = shared_.pieces[at.stage];
      if (piece.first_token < 0) return;
      choose(piece, at.stage);
      begin_ += piece.tiles();
      __syncwarp();
      if (team_.lane() == 0) shared_.piece_ring.empty[at.stage].arrive();
    }
  }

 private:
  using Piece = IndexPiece<kConfig.tokens>;
  static constexpr int kWarps = RowTeam<kConfig>::kWarps;

  __device__ void choose(const Piece& piece, int place) {
    bound_ = own_bound(piece);
    set_bar(kAnyCode);
    team_.sync();  // the pool is read
    if (team_.thread == 0) {
      shared_.counts[row_] = 0;
      shared_.limits[row_][0] = 0xffffffff;
      shared_.limits[row_][1] = 0;
    }
    least_ = 0xffffffff;
    greatest_ = 0;
    team_.sync();
    int sampled = sample_tiles(piece.tiles(), piece.stride);
    bool is_guess = false;
    for (int first = 0;;) {
      const int end = sampled > 0 ? sampled : piece.tiles();
      first = take_tiles(first, end);
      join_limits();
      const bool is_full = first < end;
      const bool is_end = first == piece.tiles();
      if (is_end && !give_verdict(place, is_guess)) return;
      const int wanted = is_end    ? num_wanted(piece)
                         : is_full ? params_.batch.top_k
                                   : keys_above_bar(sampled, piece.tiles(), params_.batch.top_k);
      std::uint64_t bound = kAnyCode;
      if (pool().num_keys() > wanted) bound = pool().find_bound(wanted, limits());
      if (is_end) return piece.slot < 0 ? write(piece, bound) : keep(piece, bound, wanted);
      if (bound != kAnyCode) {
        // The sample's bound is one of ranks: where many are equal, it does not say which are out.
        set_bar(is_full ? bound : bound >> 32 << 32);
        pool().drop_below(bar_);
        is_guess = !is_full;
      }
      if (!is_full) sampled = 0;
    }
  }

  // Tiles [first, end) of the piece in their order; returns where it stopped, at the end or because
  // the pool might not have room for more.
  __device__ int take_tiles(int first, int end) {
    for (; first < end; first += IndexConfig::kRoundTiles) {
      if (team_.any(pool().num_keys() > IndexConfig::kPoolLimit)) return first;
      const int last = begin_ + min(first + IndexConfig::kRoundTiles, end);
      if constexpr (kWarps == 2) {
        for (; next_ + 3 * kWarps < last; next_ += 4 * kWarps) take<4>();
      }
      for (; next_ + kWarps < last; next_ += 2 * kWarps) take<2>();
      for (; next_ < last; next_ += kWarps) take<1>();
    }
    return end;
  }

  __device__ void set_bar(std::uint64_t code) {
    bar_ = code;
    const auto rank = static_cast<std::uint32_t>(code >> 32);
    takes_all_ = rank <= kNanRank;
    bar_score_ = score_of(rank);
  }

  // Of what has been put into the pool, dropped keys included. The pool is whole behind it.
  __device__ void join_limits() {
    const std::uint32_t least = __reduce_min_sync(kWholeWarp, least_);
    const std::uint32_t greatest = __reduce_max_sync(kWholeWarp, greatest_);
    if (team_.lane() == 0) {
      atomicMin(&shared_.limits[row_][0], least);
      atomicMax(&shared_.limits[row_][1], greatest);
    }
    team_.sync();
  }
  __device__ RankLimits limits() const {
    return {.least = max(shared_.limits[row_][0], static_cast<std::uint32_t>(bar_ >> 32)),
            .greatest = shared_.limits[row_][1]};
  }

  // True: there is something to select.
  __device__ bool give_verdict(int place, bool is_guess) {
    const bool is_missed = is_guess && pool().num_keys() < params_.batch.top_k;
    if (team_.thread == 0) shared_.missed[place][row_] = is_missed ? 1 : 0;
    return !is_missed && bound_ != 0;
  }

  __device__ int num_wanted(const Piece& piece) const {
    if (piece.slot < 0) return params_.batch.top_k;
    return keys_of_head(pool().num_keys(), piece.tiles(), piece.row_tiles, params_.batch.top_k);
  }

  // The piece, for the merge.
  __device__ void keep(const Piece& piece, std::uint64_t bound, int head) {
    PieceHeader& header = params_.pieces.headers[piece.slot];
    if (team_.thread == 0) {
      header.first_token = piece.first_token;
      header.first_tile = piece.first_tile;
      header.end_tile = piece.end_tile;
      header.continues = piece.continues;
      header.scored_rows = piece.scored_rows;
      header.rows[row_] = {.count = pool().num_keys(),
                           .head = head,
                           .least = max(limits().least, static_cast<std::uint32_t>(bound >> 32)),
                           .greatest = limits().greatest,
                           .bound = bound};
    }
    const std::int64_t kept = std::int64_t{piece.slot} * kConfig.tokens + row_;
    pool().keep(params_.pieces.codes + kept * IndexConfig::kPoolKeys, bound, head);
  }

  __device__ void write(const Piece& piece, std::uint64_t bound) {
    pool().write(bound, bound_, params_.batch.top_k,
                 params_.out + (piece.first_token + row_) * params_.out_stride);
  }

  // What a lane has of a tile: two neighbouring keys.
  struct Keys {
    float scores[2];
    int position;  // of the first
    unsigned good[2];
  };

  // The next kTiles of the warp whose turn it is: together, as a warp that waits for every step of a
  // tile alone would not keep up with the scorers.
  template <int kTiles> __device__ void take() {
    Keys keys[kTiles];
    unsigned count = 0;
    RingPosition<kConfig.score_slots> last = at_;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      shared_.score_ring.wait_full(last);
      advance(last);
    }
    __syncwarp();  // keeps reads behind the waits
#pragma unroll
    for (Keys& own : keys) {
      read_tile(own);
      count += static_cast<unsigned>(__popc(own.good[0]) + __popc(own.good[1]));
    }
    if (count == 0) return;
    unsigned place = 0;
    if (team_.lane() == 0) place = atomicAdd(&shared_.counts[row_], count);
    place = __shfl_sync(kWholeWarp, place, 0);
    const unsigned lower = (1u << team_.lane()) - 1u;
    Pool& pool = shared_.pools[row_];
#pragma unroll
    for (const Keys& own : keys) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if ((own.good[i] >> team_.lane() & 1) != 0) {
          const unsigned at = place + __popc(own.good[i] & lower);
          const std::uint32_t rank = rank_of(own.scores[i]);
          pool.ranks[at] = rank;
          pool.positions[at] = static_cast<unsigned>(own.position + i);
          least_ = min(least_, rank);
          greatest_ = max(greatest_, rank);
        }
        place += __popc(own.good[i]);
      }
    }
  }

  __device__ void read_tile(Keys& keys) {
    const ScoreSlot<kConfig.tokens>& slot = shared_.slots[at_.stage];
    const TileMark mark = slot.mark;
    const auto scores = *reinterpret_cast<const float2*>(&slot.scores[row_][2 * team_.lane()]);
    keys.scores[0] = scores.x;
    keys.scores[1] = scores.y;
    keys.position = mark.first_key() + 2 * team_.lane();
    const int end = mark.is_mapped(2 * team_.lane()) ? bound_ : 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      bool is_good = keys.position + i < end && (takes_all_ || keys.scores[i] >= bar_score_);
      if (static_cast<std::uint32_t>(bar_) != 0) {  // of the bar's own rank, some are out
        is_good = is_good && code_of(rank_of(keys.scores[i]),
                                     static_cast<unsigned>(keys.position + i)) >= bar_;
      }
      keys.good[i] = __ballot_sync(kWholeWarp, is_good);
    }
    if (team_.lane() == 0) shared_.score_ring.empty[at_.stage].arrive();
    advance(at_);
  }

  // To this warp's next tile.
  __device__ static void advance(RingPosition<kConfig.score_slots>& at) {
    at.stage += kWarps;
    if (at.stage >= kConfig.score_slots) {
      at.stage -= kConfig.score_slots;
      at.phase ^= 1;
    }
  }

  __device__ int own_bound(const Piece& piece) const {
    int bound = piece.bounds[0];
#pragma unroll
    for (int t = 1; t < kConfig.tokens; ++t) bound = row_ == t ? piece.bounds[t] : bound;
    return bound;
  }
  __device__ RowPool<kConfig> pool() const {
    return {team_, shared_, row_};
  }

  const IndexParams& params_;
  IndexShared<kConfig>& shared_;
  const int thread_ = static_cast<int>(threadIdx.x) - IndexConfig::kScorers;
  const int row_ = thread_ / RowTeam<kConfig>::kThreads;
  const RowTeam<kConfig> team_{thread_ % RowTeam<kConfig>::kThreads, 2 + row_};
  int begin_ = 0;            // tiles of the pieces before
  int next_ = team_.warp();  // this warp's next tile
  RingPosition<kConfig.score_slots> at_;
  int bound_ = 0;            // keys that the token sees
  std::uint64_t bar_ = 0;    // a lesser code is out
  float bar_score_ = 0.0f;   // of its rank
  bool takes_all_ = true;    // there is no bar yet
  std::uint32_t least_ = 0;  // of the ranks that this thread has put into the pool
  std::uint32_t greatest_ = 0;
};

}  // namespace quire::cuda::hopper
