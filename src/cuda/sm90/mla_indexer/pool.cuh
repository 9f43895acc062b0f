// SPDX-License-Identifier: Apache-2.0
// What becomes of a pool of keys: its worst are dropped, its best are written out, or all of it is
// kept for the merge with other CTAs' splits. By the team of one row.
#pragma once

#include "cuda/sm90/mla_indexer/config.h"
#include "cuda/sm90/mla_indexer/params.h"
#include "cuda/sm90/mla_indexer/select.cuh"
#include "cuda/sm90/mla_indexer/shared.cuh"

namespace quire::cuda::sm90::mla_indexer {

template <IndexConfig kConfig> using RowTeam = Team<kConfig.chooser_threads()>;

template <IndexConfig kConfig> class RowPool {
 public:
  __device__ RowPool(const RowTeam<kConfig>& team, IndexShared<kConfig>& shared, int row)
      : team_(team), shared_(shared), pool_(shared.pools[row]), row_(row) {}

  // Of the pool's ranks. Buckets are clear behind it, for one selection.
  __device__ RankLimits find_limits() {
    clear_buckets(team_, shared_.selects[row_].bins[0]);
    std::uint32_t least = 0xffffffff;  // less one, so that absent keys are no matter
    std::uint32_t greatest = 0;
    codes()([&](std::uint32_t rank, std::uint32_t) {
      least = min(least, rank - 1);
      greatest = max(greatest, rank);
    });
    least = __reduce_min_sync(kWholeWarp, least);
    greatest = __reduce_max_sync(kWholeWarp, greatest);
    RankLimits(&limits)[RowTeam<kConfig>::kWarps] = shared_.limits[row_];
    if (team_.lane() == 0) limits[team_.warp()] = {.least = least, .greatest = greatest};
    team_.sync();
    RankLimits all;
    for (const RankLimits& own : limits) {
      all.least = min(all.least, own.least);
      all.greatest = max(all.greatest, own.greatest);
    }
    if (all.greatest != kAbsentRank) ++all.least;
    return all;
  }

  // The code from which on there are `wanted`, of more.
  __device__ std::uint64_t find_bound(int wanted, const RankLimits& limits) {
    return mla_indexer::find_bound(team_, codes(), limits, static_cast<unsigned>(wanted),
                                   shared_.selects[row_]);
  }

  // A rank from which on there are about `wanted`, as a code; kAnyCode where scores do not tell.
  __device__ std::uint64_t guess_bound(int wanted, const RankLimits& limits) {
    const ScoreBuckets buckets(limits);
    if (!buckets.are_any) return kAnyCode;
    Select& select = shared_.selects[row_];
    codes()([&](std::uint32_t rank, std::uint32_t) {
      atomicAdd(&select.bins[0][spread(static_cast<int>(buckets.of(rank)))], 1u);
    });
    team_.sync();
    find_bucket(team_, select.bins[0], static_cast<unsigned>(wanted), select);
    return std::uint64_t{buckets.rank_near(select.found[0])} << 32;
  }

  // Keys with codes from `bound` on stay. Each warp closes the gaps of its own stretch; then the
  // stretches follow each other.
  __device__ void drop_below(std::uint64_t bound) {
    const int stretch = (num_keys() / RowTeam<kConfig>::kWarps + 31) / 32 * 32;
    const int begin = team_.warp() * stretch;
    const int end = team_.warp() == RowTeam<kConfig>::kWarps - 1 ? num_keys() : begin + stretch;
    const int stay = close_gaps(begin, end, bound);
    const TeamSum sum = sum_before(team_, team_.lane() == 0 ? static_cast<unsigned>(stay) : 0u,
                                   shared_.selects[row_].warp_sums);
    const auto place = static_cast<int>(__shfl_sync(kWholeWarp, sum.before, 0));
    for (int warp = 1; warp < RowTeam<kConfig>::kWarps; ++warp) {
      if (team_.warp() == warp) move(begin, place, stay);
      team_.sync();
    }
    if (team_.thread == 0) shared_.counts[row_] = sum.total;
    team_.sync();
  }

  // Positions of codes from `bound` on.
  __device__ void write(std::uint64_t bound, int num_positions, int top_k, std::int32_t* out) {
    RowOutput output{.row = out};
    team_.sync();  // warp_sums
    write_positions(team_, codes(), bound, 0, static_cast<unsigned>(num_positions), output,
                    shared_.windows[row_], shared_.selects[row_].warp_sums);
    fill_rest(team_, output, top_k);
  }

  // For the merge: the codes from `bound` on first, how many it returns, and the others from the end.
  __device__ int keep(std::uint64_t* out, std::uint64_t bound) {
    const int count = num_keys();
    if (bound == kAnyCode) {
#pragma unroll 4
      for (int i = team_.thread; i < count; i += kThreads) out[i] = pool_.code(i);
      return count;
    }
    unsigned* places = shared_.selects[row_].found;
    team_.sync();  // of a selection
    if (team_.thread < 2) places[team_.thread] = 0;
    team_.sync();
#pragma unroll 1
    for (int i = team_.thread; i - team_.lane() < count; i += kThreads) {
      const std::uint64_t code = i < count ? pool_.code(i) : 0;
      const unsigned ahead = __ballot_sync(kWholeWarp, code >= bound);
      const unsigned behind = __ballot_sync(kWholeWarp, i < count && code < bound);
      unsigned place = 0;
      if (team_.lane() < 2) {
        const unsigned added = static_cast<unsigned>(__popc(team_.lane() == 0 ? ahead : behind));
        place = atomicAdd(&places[team_.lane()], added);
      }
      const bool is_ahead = (ahead >> team_.lane() & 1) != 0;
      place = __shfl_sync(kWholeWarp, place, is_ahead ? 0 : 1);
      const unsigned lower = (is_ahead ? ahead : behind) & ((1u << team_.lane()) - 1u);
      const auto at = static_cast<int>(place) + __popc(lower);
      if (i < count) out[is_ahead ? at : count - 1 - at] = code;
    }
    team_.sync();
    return static_cast<int>(places[0]);
  }

  __device__ int num_keys() const {
    return static_cast<int>(shared_.counts[row_]);
  }

 private:
  using Select = typename IndexShared<kConfig>::Select;
  static constexpr int kThreads = RowTeam<kConfig>::kThreads;

  // By a whole warp: keys [begin, end) with codes from `bound` on move to `begin`. Returns how many.
  __device__ int close_gaps(int begin, int end, std::uint64_t bound) {
    constexpr int kBatch = 4;  // of 32 keys, read before the first is written
    int stay = 0;
    for (int first = begin + team_.lane(); first - team_.lane() < end; first += kBatch * 32) {
      std::uint32_t ranks[kBatch];
      std::uint32_t positions[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int at = first + 32 * i;
        ranks[i] = at < end ? pool_.ranks[at] : kAbsentRank;
        positions[i] = at < end ? pool_.positions[at] : 0;
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const bool stays = code_of(ranks[i], positions[i]) >= bound;
        const unsigned staying = __ballot_sync(kWholeWarp, stays);
        if (stays) {
          const int place = begin + stay + __popc(staying & ((1u << team_.lane()) - 1u));
          pool_.ranks[place] = ranks[i];
          pool_.positions[place] = positions[i];
        }
        stay += __popc(staying);
      }
      __syncwarp();
    }
    return stay;
  }

  // By a whole warp, towards the front.
  __device__ void move(int from, int to, int count) {
    if (from == to) return;
    for (int i = team_.lane(); i - team_.lane() < count; i += 32) {
      const std::uint32_t rank = i < count ? pool_.ranks[from + i] : 0;
      const std::uint32_t position = i < count ? pool_.positions[from + i] : 0;
      __syncwarp();
      if (i < count) {
        pool_.ranks[to + i] = rank;
        pool_.positions[to + i] = position;
      }
      __syncwarp();
    }
  }

  // As rank and position, rank 0 where there is none. Eight are read before the first is shown: the
  // compiler does not read on behind what a visit writes. Neighbours are one lane's: their positions are
  // often bits of one word, where lanes of a warp would wait for each other.
  __device__ auto codes() const {
    return [this](const auto& visit) {
      const int count = num_keys();
#pragma unroll 1
      for (int first = 4 * team_.thread; first < count; first += 8 * kThreads) {
        uint4 ranks[2];
        uint4 positions[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          read_four(first + i * 4 * kThreads, count, ranks[i], positions[i]);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          visit(ranks[i].x, positions[i].x);
          visit(ranks[i].y, positions[i].y);
          visit(ranks[i].z, positions[i].z);
          visit(ranks[i].w, positions[i].w);
        }
      }
    };
  }

  __device__ void read_four(int first, int count, uint4& ranks, uint4& positions) const {
    const int at = min(first, IndexConfig::kPoolKeys - 4);
    ranks = *reinterpret_cast<const uint4*>(pool_.ranks + at);
    positions = *reinterpret_cast<const uint4*>(pool_.positions + at);
    if (first >= count) ranks.x = kAbsentRank;
    if (first + 1 >= count) ranks.y = kAbsentRank;
    if (first + 2 >= count) ranks.z = kAbsentRank;
    if (first + 3 >= count) ranks.w = kAbsentRank;
  }

  const RowTeam<kConfig> team_;
  IndexShared<kConfig>& shared_;
  Pool& pool_;
  const int row_;
};

// Which splits (params.h) make up a cut block of tokens, and what they have of one of its rows: read by
// a whole CTA in one go.

struct SplitTable {
  unsigned begun[kMaxParts / 32];      // CTA i has begun a block that others go on with
  unsigned continues[kMaxParts / 32];  // CTA i goes on with one, and does not end it
  // Of the slots (params.h), where there is a split.
  RowPart rows[2 * kMaxParts];
  int first_tokens[2 * kMaxParts];
  int scored_rows[2 * kMaxParts];
  int2 tiles[2 * kMaxParts];  // first and end
};

// The CTAs [first, first + count) have a split each; the first's is one that it began.
struct SplitList {
  int first = -1;
  int count = 0;

  __device__ int slot(int split) const { return 2 * (first + split) + (split == 0 ? 1 : 0); }
};

template <typename Threads>
__device__ inline void read_splits(const Threads& team, const IndexParams& params, int row,
                                   SplitTable& table) {
  const int rounded = (params.parts + 31) / 32 * 32;
  for (int i = team.thread; i < rounded; i += Threads::kThreads) {
    bool is_begun = false;
    bool continues = false;
    if (i < params.parts) {
      const SplitHeader* own = params.splits.headers + 2 * i;
      is_begun = own[1].first_token >= 0;
      continues = own[0].first_token >= 0 && own[0].continues != 0;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        table.rows[2 * i + j] = own[j].rows[row];
        table.first_tokens[2 * i + j] = own[j].first_token;
        table.scored_rows[2 * i + j] = own[j].scored_rows;
        table.tiles[2 * i + j] = {own[j].first_tile, own[j].end_tile};
      }
    }
    const unsigned begun = __ballot_sync(kWholeWarp, is_begun);
    const unsigned going = __ballot_sync(kWholeWarp, continues);
    if (team.lane() == 0) {
      table.begun[i / 32] = begun;
      table.continues[i / 32] = going;
    }
  }
  team.sync();
}

// The index-th cut block; first -1: there are fewer.
__device__ inline SplitList find_splits(const SplitTable& table, int parts, int index) {
  const int words = (parts + 31) / 32;
  SplitList list;
  int word = 0;
  while (word < words && index >= __popc(table.begun[word])) index -= __popc(table.begun[word++]);
  if (word == words) return list;
  unsigned rest = table.begun[word];
  for (; index > 0; --index) rest &= rest - 1;
  list.first = 32 * word + __ffs(static_cast<int>(rest)) - 1;
  // The first CTA behind it that does not go on.
  const int next = list.first + 1;
  word = next / 32;
  unsigned ends = word < words ? ~table.continues[word] >> (next % 32) << (next % 32) : 0;
  while (ends == 0 && word + 1 < words) ends = ~table.continues[++word];
  list.count = 32 * word + __ffs(static_cast<int>(ends)) - list.first;
  return list;
}

}  // namespace quire::cuda::sm90::mla_indexer
