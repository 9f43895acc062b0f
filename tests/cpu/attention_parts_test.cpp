// SPDX-License-Identifier: Apache-2.0
// The parts that the attention drivers are made of: how work is cut, what a mask's ranges say, and
// the order of depth steps in a panel, which packing by segments relies on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "cpu/attention/mask_ranges.h"
#include "cpu/attention/work_list.h"
#include "cpu/row_target.h"
#include "cpu/runtime/tile_kernels.h"
#include "reference/mask.h"
#include "support/host_tensor.h"

namespace quire::cpu {
namespace {

// Keys that take long: what is worth a thread is not in question here.
constexpr double kLong = 1e5;
constexpr WorkShape kShape{
    .kv_heads = 8, .group = 4, .key_width = 128, .value_width = 128, .key_nanoseconds = kLong};
constexpr WorkShape kLatentShape{
    .kv_heads = 1, .group = 128, .key_width = 576, .value_width = 512, .key_nanoseconds = kLong};

// Every (token, head, key) that a token may see belongs to exactly one piece.
void expect_cover(const std::vector<SequenceSpan>& sequences, const MaskRanges& mask,
                  const WorkList& list, const WorkShape& shape) {
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    for (std::int64_t token = 0; token < sequences[s].num_tokens; ++token) {
      const KeyRange seen = mask.range(sequences[s].first_token + token,
                                       sequences[s].cache_length + token, sequences[s].num_keys());
      for (std::int64_t q_head = 0; q_head < shape.kv_heads * shape.group; ++q_head) {
        const std::int64_t head = q_head / shape.group;
        std::int64_t keys = 0;
        for (const WorkPiece& piece : list.pieces) {
          const std::int64_t row =
              (token - piece.first_token) * shape.group + q_head % shape.group - piece.first_row;
          const bool holds = piece.sequence == static_cast<std::int64_t>(s) && row >= 0 &&
                             row < piece.num_rows && head >= piece.first_head &&
                             head < piece.first_head + piece.num_heads;
          if (!holds) continue;
          keys += std::max<std::int64_t>(
              0, std::min(seen.end, piece.keys.end) - std::max(seen.begin, piece.keys.begin));
        }
        ASSERT_EQ(keys, seen.end - seen.begin) << "sequence " << s << " token " << token;
      }
    }
  }
}

TEST(WorkListTest, CoversEveryKeyOnce) {
  const std::vector<SequenceSpan> sequences{
      {0, 1, 5000}, {1, 0, 70}, {1, 3, 1023}, {4, 40, 100}, {44, 1100, 2}};
  test::HostTensor begin(DType::i32, {1144});
  test::HostTensor end(DType::i32, {1144});
  for (std::int64_t token = 0; token < 1144; ++token) {
    begin.view().store({token}, static_cast<double>(token * 37 % 1500 - 200));
    end.view().store({token}, static_cast<double>(token * 53 % 6000 - 100));
  }
  for (const Mask& mask : {Mask::causal(), Mask::causal() & Mask::sliding_window(900),
                           Mask::key_intervals(begin.view(), end.view())}) {
    const MaskRanges ranges(mask);
    for (const int num_threads : {1, 2, 16, 64}) {
      for (const WorkShape& shape : {kShape, kLatentShape}) {
        expect_cover(sequences, ranges, make_work_list(sequences, ranges, shape, num_threads),
                     shape);
      }
    }
  }
}

// The largest size of all is how callers say that there is no limit.
TEST(MaskRangesTest, AWindowOfAnySizeShowsWhatIsBeforeTheQuery) {
  const Mask mask = Mask::causal() & Mask::sliding_window(std::numeric_limits<std::int64_t>::max());
  const MaskRanges ranges(mask);
  const KeyRange seen = ranges.range(0, 5, 10);
  EXPECT_EQ(seen.begin, 0);
  EXPECT_EQ(seen.end, 6);
  const Mask tree = mask | mask;  // not one interval: asked key by key
  const MaskRanges each(tree);
  const MaskRanges::State state{.ranges = &each, .cache_length = 0};
  QueryRow row{};
  row.position = 5;
  std::uint8_t visible[8];
  MaskRanges::fill_visible(&state, row, 0, 8, visible);
  for (int key = 0; key < 8; ++key) EXPECT_EQ(visible[key], key <= 5 ? 1 : 0) << key;
}

TEST(WorkListTest, SplitsKeysAtAbsolutePlaces) {
  const Mask mask = Mask::causal() & Mask::sliding_window(2000);
  const MaskRanges ranges(mask);
  const WorkList list = make_work_list({{0, 1, 4999}}, ranges, kShape, 1);
  ASSERT_EQ(list.merges.size(), 1u);
  EXPECT_EQ(list.merges[0].num_splits, 9);
  std::vector<std::int64_t> borders;
  for (const WorkPiece& piece : list.pieces) borders.push_back(piece.keys.begin);
  std::ranges::sort(borders);
  borders.erase(std::ranges::unique(borders).begin(), borders.end());
  EXPECT_EQ(borders,
            (std::vector<std::int64_t>{3000, 3072, 3328, 3584, 3840, 4096, 4352, 4608, 4864}));
}

TEST(WorkListTest, CutsTheRowsOfOneHeadForThreads) {
  const Mask mask;
  const MaskRanges ranges(mask);
  const std::vector<SequenceSpan> sequences{{0, 1, 4095}};
  EXPECT_EQ(make_work_list(sequences, ranges, kLatentShape, 2).pieces.size(), 4u);
  EXPECT_EQ(make_work_list(sequences, ranges, kLatentShape, 16).pieces.size(), 16u);
  EXPECT_EQ(make_work_list(sequences, ranges, kLatentShape, 64).pieces.size(), 16u);
}

TEST(WorkListTest, PutsTheMostExpensiveFirst) {
  const Mask mask;
  const MaskRanges ranges(mask);
  const WorkList list = make_work_list({{0, 1, 10}, {1, 600, 0}, {601, 1, 900}}, ranges, kShape, 2);
  const auto cost = [](const WorkPiece& piece) {
    return (piece.keys.end - piece.keys.begin) * piece.num_rows * piece.num_heads;
  };
  EXPECT_TRUE(std::ranges::is_sorted(list.pieces, std::greater(), cost));
}

// Ranges never hide a key that the oracle's mask shows; where they are exact, they show no other.
TEST(MaskRangesTest, AgreesWithTheOracle) {
  const test::HostTensor bits = test::HostTensor::random(DType::u8, {6, 6}, 3, 2.0);
  test::HostTensor bounds(DType::i32, {6, 2});
  constexpr double kBounds[6][2] = {{0, 23},  {3, 9}, {9, 3}, {-2147483648.0, 2147483647.0},
                                    {20, 99}, {7, 7}};
  for (std::int64_t token = 0; token < 6; ++token) {
    for (std::int64_t side = 0; side < 2; ++side) {
      bounds.view().store({token, side}, kBounds[token][side]);
    }
  }
  const Mask intervals =
      Mask::key_intervals(test::column(bounds.view(), 0), test::column(bounds.view(), 1));
  const Mask masks[] = {Mask::full(),
                        Mask::causal(),
                        Mask::sliding_window(4),
                        Mask::chunked(5),
                        Mask::causal() & Mask::chunked(3) & Mask::sliding_window(2),
                        Mask::tree(bits.view()),
                        intervals,
                        intervals & Mask::causal() & Mask::sliding_window(9),
                        intervals | Mask::sliding_window(2),
                        Mask::chunked(5) | Mask::sliding_window(2),
                        Mask::tree(bits.view()) | (Mask::causal() & Mask::chunked(4))};
  constexpr std::int64_t kCached = 17;
  constexpr std::int64_t kKeys = kCached + 6;
  for (const Mask& mask : masks) {
    const MaskRanges ranges(mask);
    for (std::int64_t local = 0; local < 6; ++local) {
      const reference::Token token{local, 0, local, kCached + local};
      const KeyRange range = ranges.range(local, token.position, kKeys);
      QueryRow row{};
      row.token = local;
      row.position = token.position;
      const MaskRanges::State state{&ranges, kCached};
      for (std::int64_t key = 0; key < kKeys; ++key) {
        const bool is_inside = key >= range.begin && key < range.end;
        std::uint8_t visible = 0;
        MaskRanges::fill_visible(&state, row, key, 1, &visible);
        const bool shows = reference::is_visible(mask, token, key);
        EXPECT_EQ(visible != 0, shows) << mask.describe() << " " << local << " " << key;
        EXPECT_TRUE(is_inside || !shows) << mask.describe() << " " << local << " " << key;
        if (ranges.is_exact()) {
          EXPECT_EQ(is_inside, shows) << mask.describe();
        }
      }
    }
  }
}

class PanelSegments : public RowTarget {};
INSTANTIATE_TEST_SUITE_P(, PanelSegments, kEveryTarget, target_name);

// A panel of depth 96 is the panels of its three thirds, one after another.
template <typename Element> void expect_segments(const TileEngineTable<Element>& engine) {
  constexpr std::int64_t kDepth = 96;
  constexpr std::int64_t kSegment = 32;
  std::mt19937 random(5);
  std::vector<std::vector<Element>> memory(kDepth);
  std::vector<const Element*> rows;
  for (std::vector<Element>& row : memory) {
    for (int i = 0; i < engine.cols; ++i) row.push_back(static_cast<Element>(random() % 1000));
    rows.push_back(row.data());
  }
  rows[40] = nullptr;
  const auto size = static_cast<std::size_t>(kDepth * engine.cols);
  std::vector<Element> whole(size);
  std::vector<Element> parts(size);
  engine.pack_b_rows(rows.data(), kDepth, engine.cols, whole.data());
  for (std::int64_t first = 0; first < kDepth; first += kSegment) {
    engine.pack_b_rows(rows.data() + first, kSegment, engine.cols,
                       parts.data() + first * engine.cols);
  }
  EXPECT_EQ(whole, parts);
}

TEST_P(PanelSegments, FollowEachOther) {
  expect_segments(tile_kernels(GetParam()).bf16);
  expect_segments(tile_kernels(GetParam()).f32);
}

}  // namespace
}  // namespace quire::cpu
