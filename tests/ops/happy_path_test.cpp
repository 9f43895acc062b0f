// SPDX-License-Identifier: Apache-2.0
// Every sample runs as it is, through the public function, and writes what it says and nothing
// else. This is the twin of the bad-input table: a refusal there is owed to the mutation.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "ops/sample.h"

namespace quire::test {
namespace {

class HappyPathTest : public testing::TestWithParam<NamedSample> {};

TEST_P(HappyPathTest, WritesItsOutputsAndNothingElse) {
  const std::unique_ptr<Sample> sample = GetParam().make();
  const Arena::Snapshot before = sample->arena.snapshot();
  std::set<std::size_t> outputs;
  for (const std::string& name : sample->written()) {
    outputs.insert(sample->arena.index_of(sample->tensor(name)));
  }
  sample->run({});
  const Arena::Snapshot after = sample->arena.snapshot();
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(before[i] != after[i], outputs.contains(i)) << "buffer " << i;
  }
}

TEST_P(HappyPathTest, GivesTheSameBytesTwice) {
  const std::unique_ptr<Sample> first = GetParam().make();
  const std::unique_ptr<Sample> second = GetParam().make();
  first->run({});
  second->run({.num_threads = 1});
  EXPECT_TRUE(first->arena.snapshot() == second->arena.snapshot());
}

INSTANTIATE_TEST_SUITE_P(Samples, HappyPathTest, testing::ValuesIn(all_samples()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace quire::test
