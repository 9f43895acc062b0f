// SPDX-License-Identifier: Apache-2.0
// mla_indexer of every target that can run here, by the oracle's judge, and its streaming top k by
// a full sort.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "cpu/mla_indexer/kernels.h"
#include "cpu/mla_indexer/top_k.h"
#include "cpu/row_target.h"
#include "reference/mla_indexer.h"
#include "support/indexer_inputs.h"

namespace quire::cpu {
namespace {

class IndexerTarget : public RowTarget {};
INSTANTIATE_TEST_SUITE_P(, IndexerTarget, kEveryTarget, target_name);

// More keys than several chunks, tokens that see fewer keys than top_k and tokens that see more.
TEST_P(IndexerTarget, ChoosesLegitimateKeys) {
  for (const std::int64_t top_k : {1, 17, 300, 2048}) {
    test::IndexerInputs inputs(test::index_options({700, 0, 3, 290}, {3, 20, 0, 12}, 48), 5, top_k);
    const MlaIndexerArgs args = inputs.args();
    ASSERT_EQ(supports(args, context(2)).kernel, kernel("mla_indexer"));
    std::vector<std::byte> expected;
    for (const int num_threads : kThreadCounts) {
      mla_indexer(args, context(num_threads));
      for (std::int64_t token = 0; token < args.q.shape[0]; ++token) {
        ASSERT_EQ(reference::selection_fault(args, token, inputs.row(token)), "")
            << "token " << token << " top_k " << top_k;
      }
      if (expected.empty()) expected = inputs.out.bytes();
      EXPECT_EQ(inputs.out.bytes(), expected) << num_threads;
    }
  }
}

TEST_P(IndexerTarget, GivesTiesToTheLowestPosition) {
  test::PickInputs inputs(test::index_options({600}, {1}), 3);
  std::vector<double> numbers(601, 1.0);
  numbers[400] = 2.0;
  numbers[3] = 0.0;
  inputs.set_scores(numbers);
  mla_indexer(inputs.args(), context(2));
  EXPECT_EQ(inputs.row(0), (std::vector<std::int32_t>{0, 1, 400}));
}

std::vector<ScoredKey> best_of(std::vector<ScoredKey> keys, std::int64_t k) {
  std::ranges::sort(keys, [](const ScoredKey& left, const ScoredKey& right) {
    return left.rank != right.rank ? left.rank > right.rank : left.position < right.position;
  });
  keys.resize(std::min(keys.size(), static_cast<std::size_t>(k)));
  return keys;
}

std::vector<std::uint32_t> positions_of(const ScoredKey* keys, std::int64_t count) {
  std::vector<std::uint32_t> positions;
  for (std::int64_t i = 0; i < count; ++i) positions.push_back(keys[i].position);
  std::ranges::sort(positions);
  return positions;
}

TEST_P(IndexerTarget, KeepsExactlyTheBestOfAStream) {
  const IndexerKernels& kernels = indexer_kernels(GetParam());
  std::mt19937 random(3);
  for (const std::int64_t k : {1, 2, 50, 700}) {
    std::vector<ScoredKey> all;
    std::vector<ScoredKey> buffer(static_cast<std::size_t>(TopK::capacity(k)));
    TopK best(buffer.data(), k, kernels.kth_rank);
    for (std::uint32_t position = 0; position < 3000;) {
      const int chunk = static_cast<int>(random() % kIndexerChunk);
      int added = 0;
      for (int i = 0; i < chunk; ++i, ++position) {
        const ScoredKey key{static_cast<std::int32_t>(random() % 40) - 20, position};
        all.push_back(key);
        if (best.takes_all() || key.rank > best.threshold()) best.end()[added++] = key;
      }
      best.add(added);
    }
    const std::int64_t count = best.finish();
    const std::vector<ScoredKey> expected = best_of(all, k);
    EXPECT_EQ(positions_of(best.begin(), count),
              positions_of(expected.data(), static_cast<std::int64_t>(expected.size())))
        << k;
  }
}

// NaN ranks below -inf, and -0 is 0; keys without a row are no candidates.
TEST_P(IndexerTarget, FiltersByRank) {
  IndexerKeys keys{};
  keys.count = 6;
  const std::byte row{};
  for (int i = 0; i < 6; ++i) keys.rows[i] = &row;
  keys.rows[3] = nullptr;
  keys.has_holes = true;
  alignas(64) float scores[kIndexerChunk] = {};
  const float first[] = {NAN, -INFINITY, -0.0f, 9.0f, 0.0f, 1.5f};
  std::copy(std::begin(first), std::end(first), scores);
  ScoredKey out[kIndexerChunk];
  const CandidateFilter all{
      .first_position = 100, .count = 6, .takes_all = true, .threshold = 0, .keys = &keys};
  const IndexerKernels& kernels = indexer_kernels(GetParam());
  ASSERT_EQ(kernels.filter(all, scores, out), 5);
  EXPECT_LT(out[0].rank, out[1].rank);
  EXPECT_LT(out[1].rank, out[2].rank);
  EXPECT_EQ(out[2].rank, out[3].rank);
  EXPECT_LT(out[3].rank, out[4].rank);
  EXPECT_EQ(out[4].position, 105u);
  CandidateFilter above = all;
  above.takes_all = false;
  above.threshold = out[3].rank;
  ASSERT_EQ(kernels.filter(above, scores, out), 1);
  EXPECT_EQ(out[0].position, 105u);
}

}  // namespace
}  // namespace quire::cpu
