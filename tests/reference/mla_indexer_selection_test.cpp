// SPDX-License-Identifier: Apache-2.0
// The judge of rows that were scored in fp32, and the error bound it judges by.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "reference/mla_indexer.h"
#include "support/attention_inputs.h"
#include "support/indexer_inputs.h"

namespace quire::reference {
namespace {

using test::index_options;
using test::kTestLayer;
using test::PickInputs;
using test::RandomInputs;

class SelectionFaultTest : public testing::Test {
 protected:
  SelectionFaultTest() { reference::mla_indexer(inputs_.args()); }
  std::string fault(const std::vector<std::int32_t>& row) const {
    return selection_fault(inputs_.args(), 1, row);
  }
  RandomInputs inputs_{index_options({20, 3}, {2, 4}, 16), 6};
};

TEST_F(SelectionFaultTest, accepts_the_oracles_own_rows) {
  for (std::int64_t token = 0; token < 6; ++token) {
    EXPECT_EQ(selection_fault(inputs_.args(), token, inputs_.row(token)), "");
  }
}

TEST_F(SelectionFaultTest, scores_of_other_keys_are_refused) {
  const std::vector<std::int32_t> row = inputs_.row(1);
  const std::vector<double> scores = indexer_scores(inputs_.args(), 1);
  std::vector<float> numbers;
  for (const std::int32_t key : row) {
    numbers.push_back(static_cast<float>(scores[static_cast<std::size_t>(key)]));
  }
  EXPECT_EQ(scores_fault(inputs_.args(), 1, row, numbers), "");
  std::vector<float> swapped = numbers;
  std::swap(swapped[0], swapped[1]);
  EXPECT_NE(scores_fault(inputs_.args(), 1, row, swapped), "");
  std::vector<float> off = numbers;
  off[2] *= 1.0f + 0x1p-15f;
  EXPECT_NE(scores_fault(inputs_.args(), 1, row, off), "");
  std::vector<std::int32_t> none = row;
  none.back() = -1;
  EXPECT_NE(scores_fault(inputs_.args(), 1, none, numbers), "") << "-inf belongs there";
}

TEST_F(SelectionFaultTest, refuses_a_worse_key) {
  // The best key that was left out, in place of the best that was taken.
  const std::vector<double> scores = indexer_scores(inputs_.args(), 1);
  std::vector<std::int32_t> row = inputs_.row(1);
  const auto by_score = [&](std::int32_t a, std::int32_t b) {
    return scores[static_cast<std::size_t>(a)] < scores[static_cast<std::size_t>(b)];
  };
  std::vector<std::int32_t> others;
  for (std::int32_t key = 0; key < 22; ++key) {
    if (std::find(row.begin(), row.end(), key) == row.end()) others.push_back(key);
  }
  *std::max_element(row.begin(), row.end(), by_score) =
      *std::max_element(others.begin(), others.end(), by_score);
  std::sort(row.begin(), row.end());
  EXPECT_NE(fault(row), "");
}

TEST_F(SelectionFaultTest, refuses_wrong_order_duplicates_and_strangers) {
  const std::vector<std::int32_t> good = inputs_.row(1);
  std::vector<std::int32_t> row = good;
  std::swap(row[0], row[1]);
  EXPECT_NE(fault(row), "");
  row = good;
  row[1] = row[0];
  EXPECT_NE(fault(row), "");
  row = good;
  row[5] = 22;
  EXPECT_NE(fault(row), "");
  row = good;
  row[5] = -1;
  EXPECT_NE(fault(row), "");
}

TEST_F(SelectionFaultTest, refuses_a_row_that_is_not_filled_up_with_minus_one) {
  std::vector<std::int32_t> row = inputs_.row(2);  // position 3 of sequence 1: 4 keys
  EXPECT_EQ(row, (std::vector<std::int32_t>{0, 1, 2, 3, -1, -1}));
  row[5] = 0;
  EXPECT_NE(selection_fault(inputs_.args(), 2, row), "");
}

// Of one head and four columns an fp32 score is off by at most (1 + 4 + 2) · 2^-24 of itself, on
// either side.
TEST(SelectionFaultTieTest, accepts_keys_that_rounding_can_exchange_and_no_others) {
  PickInputs inputs(index_options({1}, {1}), 1);
  inputs.set_score(0, 0, 448, 1.0);
  const auto fault_of_first = [&](double other_scale) {
    inputs.set_score(0, 1, 448, other_scale);
    return selection_fault(inputs.args(), 0, std::vector<std::int32_t>{0});
  };
  EXPECT_EQ(fault_of_first(1.0 - 0x1p-10), "");
  EXPECT_EQ(fault_of_first(1.0), "");
  EXPECT_EQ(fault_of_first(1.0 + 6 * 0x1p-23), "");
  EXPECT_NE(fault_of_first(1.0 + 8 * 0x1p-23), "");
}

TEST(IndexerErrorTest, bounds_what_an_f32_evaluation_loses) {
  const RandomInputs inputs(index_options({20, 3}, {2, 4}, 16), 6);
  const KvLayerView view = inputs.cache.view().key(kTestLayer);
  const std::vector<double> scores = indexer_scores(inputs.args(), 1);
  const std::vector<double> errors = indexer_score_errors(inputs.args(), 1);
  for (std::int64_t key = 0; key < 22; ++key) {
    float sum = 0.0f;
    for (std::int64_t head = 0; head < 4; ++head) {
      float dot = 0.0f;
      for (std::int32_t i = 0; i < 16; ++i) {
        dot += static_cast<float>(inputs.q.at({1, head, i}) * view.load_quantized(0, 0, key, i));
      }
      sum += std::max(dot, 0.0f) * static_cast<float>(inputs.q_scale.at({1, head}));
    }
    sum *= static_cast<float>(view.load_scale(0, 0, key, 0));
    const auto index = static_cast<std::size_t>(key);
    EXPECT_LE(std::abs(sum - scores[index]), errors[index]);
    EXPECT_LT(errors[index], 1e-3 * (1.0 + std::abs(scores[index])));
  }
}

}  // namespace
}  // namespace quire::reference
