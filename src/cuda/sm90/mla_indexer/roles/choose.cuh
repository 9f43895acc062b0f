// SPDX-License-Identifier: Apache-2.0
// The choosers: a team for each token reads the scores, puts what may be among the best of its row into
// a pool, and turns the pool into the result while the next split is being scored.
#pragma once

#include "cuda/sm90/mla_indexer/config.h"
#include "cuda/sm90/mla_indexer/find_part.cuh"
#include "cuda/sm90/mla_indexer/pool.cuh"

namespace quire::cuda::sm90::mla_indexer {

template <IndexConfig kConfig> class IndexChoose {
 public:
  __device__ IndexChoose(const IndexParams& params, IndexShared<kConfig>& shared)
      : params_(params), shared_(shared) {}

  __device__ void run() {
    for (RingPosition<IndexShared<kConfig>::kSplits> at;; at.advance()) {
      shared_.split_ring.wait_full(at);
      __syncwarp();  // keeps reads behind the wait
      const Split& split = shared_.splits[at.stage];
      if (split.first_token < 0) return;
      choose(split, at.stage);
      begin_ += split.tiles();
      __syncwarp();
      if (team_.lane() == 0) shared_.split_ring.empty[at.stage].arrive();
    }
  }

 private:
  using Split = IndexSplit<kConfig.tokens>;
  static constexpr int kWarps = RowTeam<kConfig>::kWarps;

  __device__ void choose(const Split& split, int place) {
    bound_ = own_bound(split);
    bar_ = kAnyCode;
    team_.sync();  // the pool is read
    if (team_.thread == 0) shared_.counts[row_] = 0;
    team_.sync();
    int sampled = sample_tiles(split.tiles(), split.stride);
    bool is_guess = false;
    for (int first = 0;;) {
      const int end = sampled > 0 ? sampled : split.tiles();
      first = take_tiles(first, end);
      team_.sync();  // the pool is whole
      const bool is_full = first < end;
      const bool is_end = first == split.tiles();
      if (is_end && !give_verdict(place, is_guess)) return;
      const int wanted = is_end    ? num_wanted(split)
                         : is_full ? params_.batch.top_k
                                   : keys_above_bar(sampled, split.tiles(), params_.batch.top_k);
      const RankLimits limits = pool().find_limits();
      std::uint64_t bound = kAnyCode;
      if (pool().num_keys() > wanted) {
        const bool is_exact = is_full || (is_end && split.slot < 0);
        if (!is_exact) bound = pool().guess_bound(wanted, limits);
        if (bound == kAnyCode) bound = pool().find_bound(wanted, limits);
      }
      if (is_end) return split.slot < 0 ? write(split, bound) : keep(split, bound, limits);
      if (bound != kAnyCode) {
        // The sample's bound is one of ranks: where many are equal, it does not say which are out.
        bar_ = is_full ? bound : bound >> 32 << 32;
        pool().drop_below(bar_);
        is_guess = !is_full;
      }
      if (!is_full) sampled = 0;
    }
  }

  // Tiles [first, end) of the split in their order; returns where it stopped, at the end or because
  // the pool might not have room for more. Rounds end where the ring of slots may.
  __device__ int take_tiles(int first, int end) {
    while (first < end) {
      if (team_.any(pool().num_keys() > IndexConfig::kPoolLimit)) return first;
      const int at = begin_ + first;
      const int last =
          min(at - at % IndexConfig::kRoundTiles + IndexConfig::kRoundTiles, begin_ + end);
      if (last - at == IndexConfig::kRoundTiles) {
        take<IndexConfig::kRoundTiles / kWarps>();
      } else {
        while (next_ < last) take<1>();
      }
      first = last - begin_;
    }
    return end;
  }

  // True: there is something to select.
  __device__ bool give_verdict(int place, bool is_guess) {
    const bool is_missed = is_guess && pool().num_keys() < params_.batch.top_k;
    if (team_.thread == 0) shared_.missed[place][row_] = is_missed ? 1 : 0;
    return !is_missed && bound_ != 0;
  }

  __device__ int num_wanted(const Split& split) const {
    if (split.slot < 0) return params_.batch.top_k;
    return keys_of_head(pool().num_keys(), split.tiles(), split.row_tiles, params_.batch.top_k);
  }

  // The split, for the merge.
  __device__ void keep(const Split& split, std::uint64_t bound, const RankLimits& limits) {
    const std::int64_t kept = std::int64_t{split.slot} * kConfig.tokens + row_;
    const int head = pool().keep(params_.splits.codes + kept * IndexConfig::kPoolKeys, bound);
    if (team_.thread != 0) return;
    SplitHeader& header = params_.splits.headers[split.slot];
    header.first_token = split.first_token;
    header.first_tile = split.first_tile;
    header.end_tile = split.end_tile;
    header.continues = split.continues;
    header.scored_rows = split.scored_rows;
    header.rows[row_] = {.count = pool().num_keys(),
                         .head = head,
                         .least = max(limits.least, static_cast<std::uint32_t>(bound >> 32)),
                         .greatest = limits.greatest,
                         .bound = bound};
  }

  __device__ void write(const Split& split, std::uint64_t bound) {
    pool().write(bound, bound_, params_.batch.top_k,
                 params_.out + (split.first_token + row_) * params_.out_stride);
  }

  // What a lane has of several tiles: two neighbouring keys of each.
  template <int kTiles> struct Keys {
    std::uint32_t ranks[2 * kTiles];
    std::uint32_t positions[kTiles];  // of the first of two
    unsigned good = 0;                // bit i: key i may be among the best
  };

  // The next kTiles of the warp whose turn it is: together and without branches, as a warp that waits
  // for every step alone would not keep up with the scorers.
  template <int kTiles> __device__ void take() {
    const int slot = next_ % kConfig.score_slots;
    const std::uint32_t phase = next_ / kConfig.score_slots % 2;
    next_ += kTiles * kWarps;
    wait_for<kTiles>(slot, phase);
    Keys<kTiles> keys;
    read(keys, slot);
    const auto count = static_cast<unsigned>(__popc(keys.good));
    unsigned place = 0;
    if (count > 0) place = atomicAdd(&shared_.counts[row_], count);
    __syncwarp();  // all lanes have read
    if (team_.lane() < kTiles) {
      shared_.score_ring.empty[slot + team_.lane() * kWarps].arrive();
    }
    Pool& pool = shared_.pools[row_];
    std::uint32_t* rank = pool.ranks + place;
    std::uint32_t* position = pool.positions + place;
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      if ((keys.good >> i & 1) != 0) {
        *rank++ = keys.ranks[i];
        *position++ = keys.positions[i / 2] + i % 2;
      }
    }
  }

  template <int kTiles> __device__ void wait_for(int slot, std::uint32_t phase) {
    bool are_there = true;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      are_there &= shared_.score_ring.full[slot + i * kWarps].try_wait(phase);
    }
    if (!are_there) {
#pragma unroll 1
      for (int i = 0; i < kTiles; ++i) shared_.score_ring.full[slot + i * kWarps].wait(phase);
    }
    __syncwarp();  // keeps reads behind the waits
  }

  template <int kTiles> __device__ void read(Keys<kTiles>& keys, int slot) {
    using Slot = ScoreSlot<kConfig.tokens>;
    TileMark marks[kTiles];
    TileMark all;  // of whole tiles, ranks alone decide
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const Slot& own = shared_.slots[slot + i * kWarps];
      marks[i] = own.mark;
      const std::uint32_t* ranks = &own.ranks[row_][Slot::place(row_, 2 * team_.lane())];
      const auto two = *reinterpret_cast<const uint2*>(ranks);
      keys.ranks[2 * i] = two.x;
      keys.ranks[2 * i + 1] = two.y;
      keys.positions[i] = marks[i].position(2 * team_.lane());
      all = i == 0 ? marks[0] : all.joined_with(marks[i]);
    }
    const auto bar_rank = static_cast<std::uint32_t>(bar_ >> 32);
    if (static_cast<std::uint32_t>(bar_) == 0 && all.is_whole(bound_)) {
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i) {
        if (keys.ranks[i] >= bar_rank) keys.good |= 1u << i;
      }
    } else {
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i) {
        const unsigned end = marks[i / 2].is_mapped(2 * team_.lane()) ? bound_ : 0;
        const unsigned position = keys.positions[i / 2] + i % 2;
        if (position < end && code_of(keys.ranks[i], position) >= bar_) keys.good |= 1u << i;
      }
    }
  }

  __device__ int own_bound(const Split& split) const {
    int bound = split.bounds[0];
#pragma unroll
    for (int t = 1; t < kConfig.tokens; ++t) bound = row_ == t ? split.bounds[t] : bound;
    return bound;
  }
  __device__ RowPool<kConfig> pool() const {
    return {team_, shared_, row_};
  }

  const IndexParams& params_;
  IndexShared<kConfig>& shared_;
  const int thread_ = static_cast<int>(threadIdx.x % IndexConfig::kChoosers);
  const int row_ = thread_ / RowTeam<kConfig>::kThreads;
  const RowTeam<kConfig> team_{thread_ % RowTeam<kConfig>::kThreads, 2 + row_};
  int begin_ = 0;            // tiles of the splits before
  int next_ = team_.warp();  // this warp's next tile
  int bound_ = 0;            // keys that the token sees
  std::uint64_t bar_ = 0;    // a lesser code is out
};

}  // namespace quire::cuda::sm90::mla_indexer
