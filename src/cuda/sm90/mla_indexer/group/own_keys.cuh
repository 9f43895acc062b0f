// SPDX-License-Identifier: Apache-2.0
// The keys of a CTA, whose ranks stand in its shared memory, and what of them it tells the others of
// its group: somewhat more than its share of the best first, its head; the rest of what may be chosen where
// that turns out to be too little.
#pragma once

#include "cuda/sm90/mla_indexer/group/shared.cuh"
#include "cuda/sm90/mla_indexer/select.cuh"
#include "cuda/sm90/mla_indexer/shared.cuh"
#include "cuda/sm90/mla_indexer/tile_loader.cuh"

namespace quire::cuda::sm90::mla_indexer {

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
