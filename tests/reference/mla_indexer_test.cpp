// SPDX-License-Identifier: Apache-2.0
#include "reference/mla_indexer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include "support/attention_inputs.h"
#include "support/indexer_inputs.h"

namespace quire::reference {
namespace {

using test::CacheOptions;
using test::HostTensor;
using test::index_options;
using test::IndexerInputs;
using test::kTestLayer;
using test::PageOrder;
using test::PickInputs;
using test::RandomInputs;
using Positions = std::vector<double>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(MlaIndexerTest, picks_the_best_in_ascending_order) {
  PickInputs inputs(index_options({5}, {1}), 3);
  inputs.set_scores({1, 9, 2, 7, 8, 3});
  EXPECT_EQ(inputs.run(), (Positions{1, 3, 4}));
}

TEST(MlaIndexerTest, ties_go_to_the_lowest_position) {
  PickInputs inputs(index_options({6}, {1}), 3);
  inputs.set_scores({2, 5, 5, 1, 5, 5, 5});
  EXPECT_EQ(inputs.run(), (Positions{1, 2, 4}));
}

TEST(MlaIndexerTest, all_equal_picks_the_first) {
  PickInputs inputs(index_options({199}, {1}), 4);
  inputs.set_scores(std::vector<double>(200, 0.0));
  EXPECT_EQ(inputs.run(), (Positions{0, 1, 2, 3}));
}

TEST(MlaIndexerTest, long_rows_of_ties_are_cut_by_position) {
  PickInputs inputs(index_options({199}, {1}), 100);
  std::vector<double> numbers;
  Positions expected;
  for (int key = 0; key < 200; ++key) {
    numbers.push_back(key % 4);  // 50 each of 0, 1, 2 and 3
    if (key % 4 >= 2) expected.push_back(key);
  }
  inputs.set_scores(numbers);
  EXPECT_EQ(inputs.run(), expected);
  inputs.set_score(0, 199, 0);  // one 3 less: the first 1 comes in
  expected.back() = 1;
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(inputs.run(), expected);
}

TEST(MlaIndexerTest, scores_that_differ_less_than_f32_can_tell_are_ties) {
  PickInputs inputs(index_options({1}, {1}), 1);
  // 448 · scale: the second is larger in double, equal in f32.
  inputs.q = HostTensor::of(DType::fp8_e4m3, {1, 1, 4}, {448, 0x1p-9, 0, 0});
  const KvLayerView view = inputs.cache.view().key(kTestLayer);
  for (std::int64_t key = 0; key < 2; ++key) {
    const double row[4] = {448, key == 0 ? 0 : 0x1p-9, 0, 0};
    for (std::int32_t i = 0; i < 4; ++i) view.store(0, 0, key, i, row[i]);
    view.store_scale(0, 0, key, 0, 1.0);
  }
  EXPECT_LT(indexer_scores(inputs.args(), 0)[0], indexer_scores(inputs.args(), 0)[1]);
  EXPECT_EQ(inputs.run(), (Positions{0}));
}

TEST(MlaIndexerTest, fills_with_minus_one_when_there_are_fewer_keys) {
  PickInputs inputs(index_options({2, 0}, {1, 1}), 5);
  inputs.set_scores({1, 2, 3});
  inputs.set_score(1, 0, 1);
  EXPECT_EQ(inputs.run(), (Positions{0, 1, 2, -1, -1, 0, -1, -1, -1, -1}));
}

TEST(MlaIndexerTest, causal_bound_counts_the_cached_keys) {
  PickInputs inputs(index_options({3}, {3}), 2);
  inputs.set_scores({5, 1, 2, 7, 9, 8});
  // Queries stand at 3, 4 and 5: none sees a later key, all see the cached ones.
  EXPECT_EQ(inputs.run(), (Positions{0, 3, 3, 4, 4, 5}));
}

TEST(MlaIndexerTest, full_mask_sees_every_new_key) {
  PickInputs inputs(index_options({3}, {3}), 2);
  inputs.set_scores({5, 1, 2, 7, 9, 8});
  MlaIndexerArgs args = inputs.args();
  args.mask = Mask::full();
  reference::mla_indexer(args);
  EXPECT_EQ(inputs.out.values(), (Positions{4, 5, 4, 5, 4, 5}));
}

TEST(MlaIndexerTest, no_more_keys_than_top_k_need_no_scores) {
  // The keys are poison: NaN numbers and NaN scales.
  const PickInputs inputs(index_options({3}, {2}), 5);
  EXPECT_EQ(inputs.run(), (Positions{0, 1, 2, 3, -1, 0, 1, 2, 3, 4}));
}

TEST(MlaIndexerTest, the_key_scale_multiplies_last) {
  PickInputs inputs(index_options({2}, {1}), 1);
  inputs.set_score(0, 0, 4, 1.0);
  inputs.set_score(0, 1, 2, 3.0);
  inputs.set_score(0, 2, 5, 1.0);
  EXPECT_EQ(inputs.run(), (Positions{1}));
  EXPECT_EQ(indexer_scores(inputs.args(), 0), (std::vector{4.0, 6.0, 5.0}));
}

TEST(MlaIndexerTest, relu_comes_before_the_query_scale) {
  PickInputs inputs(index_options({2}, {1}), 1);
  inputs.set_scores({-8, 3, 0.5});
  inputs.q_scale = HostTensor::filled(DType::f32, {1, 1}, -1.0);
  // -8 becomes 0 before it is weighted: 0 beats -3 and -0.5.
  EXPECT_EQ(indexer_scores(inputs.args(), 0), (std::vector{0.0, -3.0, -0.5}));
  EXPECT_EQ(inputs.run(), (Positions{0}));
}

TEST(MlaIndexerTest, heads_are_rectified_one_by_one_and_summed) {
  IndexerInputs inputs(index_options({0}, {1}), 3, 1);
  const KvLayerView view = inputs.cache.view().key(kTestLayer);
  const double key[4] = {1, -2, 3, 0.5};
  for (std::int32_t i = 0; i < 4; ++i) view.store(0, 0, 0, i, key[i]);
  view.store_scale(0, 0, 0, 0, 0.5);
  inputs.q = HostTensor::of(DType::fp8_e4m3, {1, 3, 4}, {1, 1, 1, 0, 0, 4, 0, 2, 2, 0, 0, 4});
  inputs.q_scale = HostTensor::of(DType::f32, {1, 3}, {2, 100, -0.25});
  // Dots 2, -7 and 4: 0.5 · (2·2 + 0·100 - 4·0.25)
  EXPECT_EQ(indexer_scores(inputs.args(), 0), (std::vector{1.5}));
}

TEST(MlaIndexerTest, nan_ranks_below_everything) {
  PickInputs inputs(index_options({3}, {1}), 2);
  inputs.set_scores({0, 3, 1, 2});
  inputs.set_score(0, 1, kNan);
  inputs.q_scale = HostTensor::filled(DType::f32, {1, 1}, -1.0);
  EXPECT_TRUE(std::isnan(indexer_scores(inputs.args(), 0)[1]));
  EXPECT_EQ(inputs.run(), (Positions{0, 2}));
  inputs.set_score(0, 0, 1, kNan);
  inputs.set_score(0, 2, 1, kNan);
  EXPECT_EQ(inputs.run(), (Positions{0, 3}));  // of the NaN ones, the lowest
}

TEST(MlaIndexerTest, keys_without_a_page_are_never_chosen) {
  PickInputs inputs(index_options({9}, {1}), 3);
  inputs.set_scores({1, 2, 3, 4, 50, 60, 70, 80, 5, 6});
  inputs.cache.unassign(0, 1);  // 4 … 7
  EXPECT_EQ(inputs.run(), (Positions{3, 8, 9}));
  inputs.cache.unassign(0, 0);
  EXPECT_EQ(inputs.run(), (Positions{8, 9, -1}));
}

TEST(MlaIndexerTest, empty_batches_do_nothing) {
  const PickInputs no_tokens(index_options({4, 2}, {0, 0}), 3);
  EXPECT_NO_THROW(reference::mla_indexer(no_tokens.args()));
}

class MlaIndexerPagesTest
    : public testing::TestWithParam<std::tuple<std::int64_t, PageOrder, bool>> {};

TEST_P(MlaIndexerPagesTest, any_order_of_pages_gives_the_same) {
  CacheOptions options = index_options({20, 3}, {2, 4}, 16);
  options.page_size = 64;
  options.page_order = PageOrder::ascending;
  const RandomInputs contiguous(options, 6);
  reference::mla_indexer(contiguous.args());
  std::tie(options.page_size, options.page_order, options.own_scale_pages) = GetParam();
  const RandomInputs paged(options, 6);
  reference::mla_indexer(paged.args());
  EXPECT_EQ(paged.out.values(), contiguous.out.values());
}

INSTANTIATE_TEST_SUITE_P(
    Orders, MlaIndexerPagesTest,
    testing::Combine(testing::Values(1, 4, 16),
                     testing::Values(PageOrder::descending, PageOrder::shuffled), testing::Bool()));

}  // namespace
}  // namespace quire::reference
