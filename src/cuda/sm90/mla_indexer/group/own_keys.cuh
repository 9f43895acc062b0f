// SPDX-License-Identifier: Apache-2.0
// The keys of a CTA, whose ranks stand in its shared memory, and what of them it tells the others of
// its group: somewhat more than its share of the best first, its head; the rest of what may be chosen where
// that turns out to be too little.
#pragma once

#include "cuda/common/rows/token_place.cuh"
#include "cuda/sm90/mla_indexer/params.h"
#include "cuda/sm90/mla_indexer/select.cuh"
#include "cuda/sm90/mla_indexer/shared.cuh"
#include "cuda/sm90/mla_indexer/tile_loader.cuh"

namespace quire::cuda::sm90::mla_indexer {

inline constexpr int kGroupThreads = IndexConfig::kScorers + 128;
using GroupTeam = BlockTeam<kGroupThreads>;

// Of the selection from a CTA's own keys, then from the heads of its group.
struct GroupSelectShared {
  static constexpr int kWindowWords = 768;
  static constexpr int kScorerWarps = IndexConfig::kScorers / 32;

  SelectShared<1> select;
  RankSummary seen[kScorerWarps];  // by each warp of scorers
  std::uint64_t bound;
  unsigned collected;   // codes, of the head or of the tail
  unsigned valid;       // codes in all heads
  unsigned before;      // chosen positions before this CTA's window
  unsigned tail_place;  // of the CTA's own in its group's tail
  unsigned num_candidates;
  std::uint64_t candidates[kMostCandidates];
  RankLimits limits;
  // A bit for each position that this CTA writes if it is chosen.
  std::uint32_t window[kWindowWords];

  // Needs a sync before a selection.
  __device__ void clear() {
    const auto thread = static_cast<int>(threadIdx.x);
    clear_buckets(GroupTeam{}, select.bins[0]);
    for (int i = thread; i < kWindowWords; i += kGroupThreads) window[i] = 0;
    if (thread != 0) return;
    collected = 0;
    valid = 0;
    before = 0;
    num_candidates = 0;
    limits = {};
  }
};

// The ranks of a CTA's keys follow it: [capacity], tile after tile.
template <IndexConfig kConfig> struct alignas(1024) GroupShared : RowStages<kConfig> {
  GroupSelectShared select;

  // The codes of its head, where tiles were.
  static_assert(sizeof(RowStages<kConfig>::tiles) >= GroupBoard::kMostHead * sizeof(std::uint64_t));
  __device__ std::uint64_t* codes() { return reinterpret_cast<std::uint64_t*>(this->tiles); }
  __device__ std::uint32_t* ranks() { return reinterpret_cast<std::uint32_t*>(this + 1); }

  // By one thread, before a fence_barrier_init and a barrier.
  __device__ void init() { this->init_stages(); }
};

// Which row a CTA works on, and with whom: rows have as many CTAs as befits their tiles,
// and one at least. Found by a whole warp from the lengths in device memory.

// Where all rows have as many tiles: right for most batches, and known before any length is read.
__device__ inline RowShare guess_group(const IndexBatch& batch, int parts) {
  const auto rows = static_cast<unsigned>(batch.tokens);
  const GroupCuts cuts{.spare = parts - rows, .total = rows};
  const auto block = static_cast<int>(blockIdx.x);
  const auto lane = threadIdx.x % 32;
  const unsigned begun = __ballot_sync(kWholeWarp, lane < rows && cuts.begin(lane, lane) <= block);
  const auto row = static_cast<unsigned>(31 - __clz(static_cast<int>(begun)));
  const int first = cuts.begin(row, row);
  RowShare share{.rank = block - first, .size = cuts.begin(row + 1, row + 1) - first};
  share.row.token = static_cast<int>(row);
  return share;
}

// Of the lane-th token, if there is one.
__device__ inline WholeRow find_own_row(const IndexBatch& batch, int token) {
  WholeRow row{.token = token};
  if (token >= batch.tokens) return row;
  int sequence = min(token, batch.size - 1);  // where sequences have one new token each
  SequenceBlocks work = sequence_blocks(batch, sequence);
  if (token < work.first_token || token >= work.first_token + work.tokens) {
    sequence = sequence_of(batch.row_offsets, batch.size, static_cast<std::uint32_t>(token));
    work = sequence_blocks(batch, sequence);
    if (token >= work.first_token + work.tokens) return row;
  }
  row.sequence = sequence;
  row.bound = bound_of(batch, work, token - work.first_token);
  return row;
}

// max_tiles: of a row that the plan has room for.
__device__ inline RowShare find_group(const IndexBatch& batch, int parts, int max_tiles) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const WholeRow own = find_own_row(batch, lane);
  const int tiles = own.bound > batch.top_k ? min(own.tiles(), max_tiles) : 0;
  const unsigned end = sum_up_to_lane(static_cast<unsigned>(tiles), lane);
  const auto rows = static_cast<unsigned>(batch.tokens);
  const GroupCuts cuts{.spare = parts - rows, .total = max(__shfl_sync(kWholeWarp, end, 31), 1u)};
  const int first = cuts.begin(lane, end - tiles);
  const auto block = static_cast<int>(blockIdx.x);
  const unsigned begun = __ballot_sync(kWholeWarp, lane < batch.tokens && first <= block);
  const int row = 31 - __clz(static_cast<int>(begun));
  const int begin = __shfl_sync(kWholeWarp, first, row);
  const int behind = __shfl_sync(kWholeWarp, first, (row + 1) % 32);
  const int next = row + 1 < batch.tokens ? behind : parts;
  return {.rank = block - begin,
          .size = next - begin,
          .row = {.token = row,
                  .sequence = __shfl_sync(kWholeWarp, own.sequence, row),
                  .bound = __shfl_sync(kWholeWarp, own.bound, row)},
          .tiles = __shfl_sync(kWholeWarp, tiles, row)};
}

// Of all CTAs of a group: a guess that turns out wrong costs time, never a key.
struct HeadSize {
  int wanted;  // codes
  int room;    // for what else is in the bucket of the last one; an even number

  __device__ HeadSize(int top_k, int size) {
    const float expected = static_cast<float>(top_k) / static_cast<float>(size);
    wanted = static_cast<int>(expected + 4.0f * sqrtf(expected)) + 2;
    room = (wanted + wanted / 16 + 4) / 2 * 2;
  }
};

class OwnKeys {
 public:
  __device__ OwnKeys(const RowShare& share, const std::uint32_t* ranks, GroupSelectShared& shared)
      : share_(share), ranks_(ranks), shared_(shared), end_(share.own_tiles() * kIndexTileKeys) {}

  __device__ RankSummary seen() const {
    RankSummary all;
    if (team_.lane() < GroupSelectShared::kScorerWarps) all = shared_.seen[team_.lane()];
    return all.of_warp();
  }

  // The codes from the returned one on go to out [size.room], with 0 behind them; kAnyCode: all do. Buckets are
  // clear before it.
  __device__ std::uint64_t choose_head(const HeadSize& size, std::uint64_t* out) {
    const RankSummary all = seen();
    for (int i = team_.thread; i < size.room; i += kGroupThreads) out[i] = 0;
    const bool is_all = all.count <= static_cast<unsigned>(size.room);
    std::uint64_t bound = is_all ? kAnyCode : guess_bound(all, size.wanted);
    if (is_all) team_.sync();
    collect(bound, ~std::uint64_t{0}, size.room, out);
    team_.sync();
    if (shared_.collected <= static_cast<unsigned>(size.room)) return bound;
    clear_buckets(team_, shared_.select.bins[0]);
    team_.sync();
    bound = find_bound(team_, Codes{this}, {.least = all.least, .greatest = all.greatest},
                       static_cast<unsigned>(size.room), shared_.select);
    if (team_.thread == 0) shared_.collected = 0;
    team_.sync();
    collect(bound, ~std::uint64_t{0}, size.room, out);
    team_.sync();
    return bound;
  }

  // Codes from `bound` on that are below `end`: the first `room` of them to `out`, in any order. Counts all.
  __device__ void collect(std::uint64_t bound, std::uint64_t end, int room, std::uint64_t* out) {
    for_each_four([&](const std::uint32_t(&ranks)[4], std::uint32_t position) {
      unsigned good = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::uint64_t code = code_of(ranks[i], position + i);
        good |= (code >= bound && code < end ? 1u : 0u) << i;
      }
      if (good == 0) return;
      auto place = static_cast<int>(atomicAdd(&shared_.collected, __popc(good)));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if ((good >> i & 1) == 0) continue;
        if (place < room) out[place] = code_of(ranks[i], position + i);
        ++place;
      }
    });
  }

 private:
  // A rank from which on there are about `wanted`, as a code; kAnyCode where scores do not tell.
  __device__ std::uint64_t guess_bound(const RankSummary& all, int wanted) {
    const ScoreBuckets buckets(RankLimits{.least = all.least, .greatest = all.greatest});
    if (!buckets.are_any) {
      team_.sync();
      return kAnyCode;
    }
    for_each_four([&](const std::uint32_t(&ranks)[4], std::uint32_t) {
#pragma unroll
      for (const std::uint32_t rank : ranks) {
        atomicAdd(&shared_.select.bins[0][spread(static_cast<int>(buckets.of(rank)))], 1u);
      }
    });
    team_.sync();
    find_bucket(team_, shared_.select.bins[0], static_cast<unsigned>(wanted), shared_.select);
    return std::uint64_t{buckets.rank_near(shared_.select.found[0])} << 32;
  }

  // The thread's, four neighbours at a time, as ranks and the position of the first. Visits without branches
  // overlap: one that waits for itself takes 140 clocks a key.
  template <typename Visit> __device__ void for_each_four(const Visit& visit) const {
#pragma unroll 1
    for (int first = 4 * team_.thread; first < end_; first += 4 * kGroupThreads) {
      const auto four = *reinterpret_cast<const uint4*>(ranks_ + first);
      const int tile = share_.tile(first / kIndexTileKeys);
      const std::uint32_t ranks[4] = {four.x, four.y, four.z, four.w};
      visit(ranks, static_cast<std::uint32_t>(tile * kIndexTileKeys + first % kIndexTileKeys));
    }
  }
  // As rank and position.
  struct Codes {
    const OwnKeys* keys;

    template <typename Visit> __device__ void operator()(const Visit& visit) const {
      keys->for_each_four([&](const std::uint32_t(&ranks)[4], std::uint32_t position) {
#pragma unroll
        for (int i = 0; i < 4; ++i) visit(ranks[i], position + i);
      });
    }
  };

  const RowShare& share_;
  const std::uint32_t* ranks_;
  GroupSelectShared& shared_;
  const int end_;
  const GroupTeam team_{};
};

// The scorers of a CTA's share of a row: three warpgroups take its tiles by turns and leave the ranks
// of its keys.

template <IndexConfig kConfig> class ShareScore {
 public:
  __device__ ShareScore(const IndexParams& params, const RowShare& share,
                        GroupShared<kConfig>& shared)
      : share_(share), shared_(shared), scorer_(params, shared, warpgroup_in_block()) {}

  __device__ void run() {
    shared_.queries_full.wait(0);
    __syncwarp();  // keeps reads behind the wait
    scorer_.load_weights(0);
    next_ = shared_.ranks() + warpgroup_in_block() * kIndexTileKeys + Scorer::key();
    scorer_.score(0, warpgroup_in_block(), share_.own_tiles(),
                  [this](const typename Scorer::Parts& parts) { leave(scorer_.join(parts)); });
    leave_summary();
  }

 private:
  using Scorer = TileScorer<kConfig, GroupShared<kConfig>>;

  __device__ void leave(const typename Scorer::Score& score) {
    const int key = Scorer::key();
    const bool is_seen =
        static_cast<int>(score.mark.position(key)) < share_.row.bound && score.mark.is_mapped(key);
    const std::uint32_t rank = is_seen ? rank_of(score.value) : kAbsentRank;
    if (Scorer::Sums::is_first()) *next_ = rank;
    next_ += IndexConfig::kWarpgroups * kIndexTileKeys;
    if (!is_seen) return;
    seen_.add({.least = rank, .greatest = rank, .count = Scorer::Sums::is_first() ? 1u : 0u});
  }

  __device__ void leave_summary() {
    __syncwarp();
    const RankSummary all = seen_.of_warp();
    if (threadIdx.x % 32 == 0) shared_.select.seen[threadIdx.x / 32] = all;
  }

  const RowShare& share_;
  GroupShared<kConfig>& shared_;
  Scorer scorer_;
  std::uint32_t* next_ = nullptr;  // the rank of this thread's key of the next tile
  RankSummary seen_;
};

}  // namespace quire::cuda::sm90::mla_indexer
