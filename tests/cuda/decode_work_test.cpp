// SPDX-License-Identifier: Apache-2.0
// How decode work is cut, walked on the host as the kernels walk it on the device.
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "cuda/common/split_kv/split_schedule.h"
#include "gtest/gtest.h"

namespace quire::cuda {
namespace {

struct Lengths {
  std::vector<std::uint32_t> row_offsets{0};
  std::vector<std::uint32_t> cached;
  std::vector<std::uint32_t> keys;  // empty: those that are cached and new

  void add(std::uint32_t new_tokens, std::uint32_t cached_tokens) {
    row_offsets.push_back(row_offsets.back() + new_tokens);
    cached.push_back(cached_tokens);
  }
  DecodeBatch batch(int kv_heads, int tile_tokens, VisibleRange visible) const {
    return {.row_offsets = row_offsets.data(),
            .cache_lengths = cached.data(),
            .key_lengths = keys.empty() ? nullptr : keys.data(),
            .size = static_cast<int>(cached.size()),
            .kv_heads = kv_heads,
            .group = 4,
            .tile_tokens = tile_tokens,
            .visible = visible};
  }
};

struct GivenSplit {
  int part;
  WorkSplit split;
  SequenceWork work;
};
using WorkTile = std::tuple<int, int, int>;  // sequence, tile, KV head

struct WalkedWork {
  WorkCuts cuts;
  std::map<WorkTile, std::vector<GivenSplit>> work_tiles;
  std::map<WorkTile, int> begins;  // on the work list
};

WorkPlace find(const DecodeBatch& batch, const SplitSchedule& schedule, int position) {
  WorkPlace place;
  for (;; ++place.sequence) {
    place.work = sequence_work(batch, place.sequence);
    const int cost = place.work.cost(schedule);
    if (position < place.begin + cost) return place;
    place.begin += cost;
  }
}

WalkedWork walk_all(const DecodeBatch& batch, const SplitSchedule& schedule) {
  WalkedWork walked;
  int total = 0;
  for (int sequence = 0; sequence < batch.size; ++sequence) {
    const SequenceWork work = sequence_work(batch, sequence);
    for (int work_tile = 0; work_tile < work.work_tiles; ++work_tile) {
      walked.begins[{sequence, work_tile / batch.kv_heads, work_tile % batch.kv_heads}] =
          total + work_tile * work.work_tile_cost(schedule);
    }
    total += work.cost(schedule);
  }
  walked.cuts = cut_work(schedule, total);
  for (int part = 0; part < schedule.blocks; ++part) {
    const bool has_cut = part < walked.cuts.parts && total > 0;
    const WorkPlace place = has_cut ? find(batch, schedule, walked.cuts.at(part)) : WorkPlace{};
    WorkWalk walk(batch, schedule, walked.cuts, place, part);
    for (WorkSplit split; walk.next(split);) {
      walked.work_tiles[{walk.sequence(), split.tile, split.kv_head}].push_back(
          {part, split, walk.work()});
    }
  }
  return walked;
}

// Every key block of every work tile once, in order; whole work tiles have no slot, others one of their own.
void expect_complete(const WalkedWork& walked, std::int64_t slots) {
  std::set<std::int64_t> used;
  EXPECT_EQ(walked.work_tiles.size(), walked.begins.size());
  for (const auto& [work_tile, splits] : walked.work_tiles) {
    int block = 0;
    for (const GivenSplit& given : splits) {
      EXPECT_EQ(given.split.begin, block);
      EXPECT_GT(given.split.end, given.split.begin);
      block = given.split.end;
      EXPECT_EQ(given.split.slot < 0, splits.size() == 1);
      EXPECT_LT(given.split.slot, slots);
      EXPECT_TRUE(given.split.slot < 0 || used.insert(given.split.slot).second);
    }
    EXPECT_EQ(block, splits.front().work.blocks);
  }
}

// What the merging kernel works out for itself.
void expect_found_by_merge(const WalkedWork& walked, const SplitSchedule& schedule) {
  for (const auto& [work_tile, splits] : walked.work_tiles) {
    const SharedWorkTile shared = shared_work_tile(
        schedule, walked.cuts, walked.begins.at(work_tile), splits.front().work.blocks);
    ASSERT_EQ(shared.splits, static_cast<int>(splits.size()));
    for (int j = 0; shared.splits > 1 && j < shared.splits; ++j) {
      EXPECT_EQ(splits[j].part, shared.first + j);
      EXPECT_EQ(splits[j].split.slot, split_slot(shared.first + j, j == 0));
    }
  }
}

class DecodeWorkTest : public ::testing::Test {
 protected:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  Lengths random_lengths() {
    Lengths lengths;
    const int most = pick(0, 3) == 0 ? 9000 : 300;
    for (int batch = pick(1, 40); batch > 0; --batch) lengths.add(pick(0, 5), pick(0, most));
    if (pick(0, 2) == 0) {
      for (std::size_t i = 0; i < lengths.cached.size(); ++i) {
        lengths.keys.push_back(pick(0, 1) == 0 ? 0 : static_cast<std::uint32_t>(pick(0, most)));
      }
    }
    return lengths;
  }
  VisibleRange random_range() {
    VisibleRange range{.ahead = pick(0, 1) == 0 ? 0 : VisibleRange::kUnbounded};
    if (pick(0, 2) == 0) range.window = pick(1, 500);
    if (pick(0, 2) == 0) range.chunk = pick(1, 500);
    return range;
  }

  std::mt19937 random_{7};
};

TEST_F(DecodeWorkTest, SequencesWithoutKeysHaveOneBlock) {
  Lengths lengths;
  lengths.add(2, 300);
  lengths.add(1, 300);
  lengths.add(1, 70);
  lengths.keys = {0, 0xffffffffU, 65};
  // A window that ends before it begins, nothing at all, and keys that the causal mask shows.
  const DecodeBatch windowed = lengths.batch(1, 2, {.ahead = 0, .window = 9});
  for (int sequence = 0; sequence < 2; ++sequence) {
    const SequenceWork work = sequence_work(windowed, sequence);
    EXPECT_EQ(work.num_keys, 0);
    EXPECT_EQ(first_position(windowed, sequence, work), 300);
    EXPECT_EQ(work.first_block, 0);
    EXPECT_EQ(work.blocks, 1);
    EXPECT_EQ(work.work_tiles, 1);
  }
  const DecodeBatch causal = lengths.batch(1, 2, {.ahead = 0});
  const SequenceWork work = sequence_work(causal, 2);
  EXPECT_EQ(work.num_keys, 65);
  EXPECT_EQ(work.blocks, 2);
}

TEST_F(DecodeWorkTest, CutsCoverEveryKeyBlockOnce) {
  for (int round = 0; round < 300; ++round) {
    const Lengths lengths = random_lengths();
    const DecodeBatch batch = lengths.batch(pick(1, 8), pick(1, 4), random_range());
    const SplitSchedule schedule{
        .blocks = pick(1, 200), .work_tile_cost = pick(0, 3), .min_split = pick(1, 3)};
    const WalkedWork walked = walk_all(batch, schedule);
    expect_complete(walked, 2 * schedule.blocks);
    expect_found_by_merge(walked, schedule);
  }
}

TEST_F(DecodeWorkTest, NothingToDoGivesNoSplits) {
  Lengths lengths;
  lengths.add(0, 100);
  lengths.add(0, 0);
  EXPECT_TRUE(walk_all(lengths.batch(8, 2, {}), {.blocks = 132}).work_tiles.empty());
}

// No part is longer than its share, a split too short to cut and the beginning of a work tile.
TEST_F(DecodeWorkTest, PartsAreEven) {
  for (int round = 0; round < 100; ++round) {
    const Lengths lengths = random_lengths();
    const DecodeBatch batch = lengths.batch(8, 2, {.ahead = 0});
    const SplitSchedule schedule{
        .blocks = 132, .work_tile_cost = pick(0, 2), .min_split = pick(1, 2)};
    const WalkedWork walked = walk_all(batch, schedule);
    std::vector<int> blocks(schedule.blocks);
    for (const auto& [work_tile, splits] : walked.work_tiles) {
      for (const GivenSplit& given : splits) {
        blocks[given.part] += given.split.end - given.split.begin;
      }
    }
    const int share = ceil_div(walked.cuts.total, walked.cuts.parts);
    for (const int count : blocks)
      EXPECT_LE(count, share + schedule.min_split + schedule.work_tile_cost);
  }
}

TEST_F(DecodeWorkTest, InvariantSplitsDependOnTheSequenceAlone) {
  for (int round = 0; round < 100; ++round) {
    const Lengths lengths = random_lengths();
    const int kv_heads = pick(1, 4);
    const VisibleRange range = random_range();
    const SplitSchedule schedule{.blocks = pick(1, 200), .is_invariant = true, .max_tiles = 5};
    const WalkedWork together = walk_all(lengths.batch(kv_heads, 1, range), schedule);
    expect_complete(together, std::int64_t{kMaxSplits} * 5 * kv_heads *
                                  static_cast<int>(lengths.cached.size()));
    for (const auto& [work_tile, splits] : together.work_tiles) {
      const int sequence = std::get<0>(work_tile);
      Lengths alone;
      alone.add(lengths.row_offsets[sequence + 1] - lengths.row_offsets[sequence],
                lengths.cached[sequence]);
      if (!lengths.keys.empty()) alone.keys.push_back(lengths.keys[sequence]);
      const WalkedWork walked = walk_all(alone.batch(kv_heads, 1, range),
                                         {.blocks = 7, .is_invariant = true, .max_tiles = 5});
      const auto& same = walked.work_tiles.at({0, std::get<1>(work_tile), std::get<2>(work_tile)});
      ASSERT_EQ(same.size(), splits.size());
      for (std::size_t i = 0; i < same.size(); ++i) {
        EXPECT_EQ(same[i].split.begin, splits[i].split.begin);
        EXPECT_EQ(same[i].split.slot % kMaxSplits, splits[i].split.slot % kMaxSplits);
      }
    }
  }
}

}  // namespace
}  // namespace quire::cuda
