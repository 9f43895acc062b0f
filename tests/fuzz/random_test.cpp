// SPDX-License-Identifier: Apache-2.0
// A short run of random problems with a fixed seed, and what the generator itself promises. quire_random is the long one.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "fuzz/problems/gaps.h"
#include "fuzz/problems/random_case.h"
#include "fuzz/problems/random_check.h"

namespace quire::test {
namespace {

class RandomProblems : public testing::TestWithParam<std::string> {};

TEST_P(RandomProblems, AreValidCases) {
  for (const Extent extent : {Extent::small, Extent::tiles}) {
    for (std::int64_t index = 0; index < 200; ++index) {
      Draw draw = draw_of(1, index, extent);
      const nlohmann::json object = random_case(GetParam(), draw);
      EXPECT_NO_THROW(
          static_cast<void>(tools::parse_cases(nlohmann::json::array({object}), "random")))
          << object.dump();
    }
  }
}

TEST_P(RandomProblems, AgreeWithTheOracleOnEveryTarget) {
  const std::vector<std::string> targets = targets_of_this_machine();
  for (std::int64_t index = 0; index < 100; ++index) {
    Draw draw = draw_of(24, index, Extent::small);
    const RandomProblem problem = draw_problem(GetParam(), draw);
    for (const auto& [target, verdict] : check_random(problem, targets)) {
      if (verdict.outcome != tools::Outcome::failed) continue;
      ADD_FAILURE() << verdict.faults.front() << "\n    " << problem.describe()
                    << "\n    quire_random --op " << GetParam() << " --target " << target
                    << " --seed 24 --index " << index;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, RandomProblems, testing::ValuesIn(tools::known_ops()),
                         [](const auto& info) { return info.param; });

// Problems that failed, each for a reason of its own; whatever the generator makes of these numbers one day has to pass.
TEST(RandomProblem, PassesWhereOneFailed) {
  struct Place {
    const char* op;
    std::int64_t index;
    std::uint64_t seed = 7;
  };
  const Place places[] = {
      {"flash_attention",
       14567},  // more than eight random roundings show what may happen to an f32 sum
      {"flash_attention", 90827},  // a sum at the end of f16's range overflows by its roundings
      {"mla_prefill", 2542},       // chunks of one token: all the sums are those of the merge
      {"mla_prefill", 3411},       // a token without keys, decoded through a weight with a NaN
      {"sparse_mla", 1850},        // one row 21 times: equal terms, all rounded to the same side
      {"sparse_mla", 12363},       // scores of 1e12 that fp32 cannot tell apart
      {"mla_decode", 2676},        // codes of e4m3 cross a middle
      {"mla_decode", 41389},       // a weight beside 1 before w_uv
      {"mla_decode", 89218},       // one random rounding in sixty meets what the kernel met
      {"mla_decode", 65432},       // a subnormal number of bf16 and an infinity
      {"mla_decode", 805, 78},     // a sum that cancels, times an infinite weight
  };
  for (const Place& place : places) {
    Draw draw = draw_of(place.seed, place.index, Extent::small);
    const RandomProblem problem = draw_problem(place.op, draw);
    for (const auto& [target, verdict] : check_random(problem, targets_of_this_machine())) {
      if (verdict.outcome != tools::Outcome::failed) continue;
      ADD_FAILURE() << target << " " << verdict.faults.front() << "\n    " << problem.describe();
    }
  }
}

TEST(Draw, MakesTheSameProblemOfTheSameBytes) {
  const std::vector<std::uint8_t> bytes{3, 1, 4, 1, 5, 9, 2, 6};
  for (const std::string& op : tools::known_ops()) {
    Draw first{std::span(bytes)};
    Draw second{std::span(bytes)};
    EXPECT_EQ(random_case(op, first), random_case(op, second)) << op;
  }
}

// The classes of problems whose absence let wrong numbers pass.
TEST(Generator, DrawsEveryFormatWithEveryXAndEveryScaleAndPermutation) {
  std::set<std::string> seen;
  std::set<std::string> ragged;  // K that is no multiple of 32, by packed format and x
  bool has_no_q = false;
  bool has_wide_zeros = false;  // that four bits cannot hold
  for (std::int64_t index = 0; index < 40'000; ++index) {
    Draw draw = draw_of(1, index, Extent::small);
    const nlohmann::json object = random_case("fused_qkv_matmul", draw);
    const nlohmann::json& weight = object["weight"];
    const std::string format = weight["format"];
    const std::string x = object["x_dtype"];
    const bool is_packed = object.value("packed", false);
    seen.insert(format + " " + x + " " + object.value("input_scale", "none") +
                (weight.contains("perm") ? " perm" : "") + (is_packed ? " packed" : ""));
    if (is_packed && object["hidden"].get<int>() % 32 != 0) ragged.insert(format + " " + x);
    has_no_q = has_no_q || object["q_dim"] == 0;
    has_wide_zeros = has_wide_zeros || weight.value("largest_zero", 15) > 16;
  }
  // Sixteen formats; x of three floats, or of two fp8 dtypes with three kinds of scales; perm or not; packed or not.
  EXPECT_EQ(seen.size(), 16u * (3 + 2 * 3) * 2 * 2);
  EXPECT_EQ(ragged.size(), 2u * 5);  // dense and fp8: the others have whole groups
  EXPECT_TRUE(has_no_q);
  EXPECT_TRUE(has_wide_zeros);
}

RandomProblem draw_with(const std::string& op, bool has_gaps) {
  for (std::int64_t index = 0;; ++index) {
    Draw draw = draw_of(5, index, Extent::small);
    RandomProblem problem = draw_problem(op, draw);
    const bool has_tokens = problem.object["tokens"] > 0;
    if (has_tokens && problem.has_gaps == has_gaps && problem.edits.empty()) return problem;
  }
}

// What a kernel might do to a problem on views with gaps, and the checker must see.
TEST(Gaps, AreWatched) {
  const RandomProblem problem = draw_with("merge_states", true);
  tools::Built built = problem.parsed.build(tools::Layout::requested);
  std::vector<GappedTensor> gapped;
  for (std::uint64_t seed = 0; gapped.empty(); ++seed) {
    Draw draw(seed);
    gapped = add_gaps(draw, built);
  }
  const tools::Memory::Snapshot before = built.memory.snapshot();
  built.run({});
  EXPECT_TRUE(built.memory.stray_writes(before).empty());
  for (const tools::Buffer& buffer : built.memory.buffers()) {
    if (!buffer.name.ends_with("with gaps")) continue;
    const std::byte past_the_end = buffer.storage[buffer.storage.size() - 1];
    const_cast<std::byte&>(buffer.storage.back()) = ~past_the_end;
    EXPECT_FALSE(built.memory.stray_writes(before).empty()) << buffer.name;
    const_cast<std::byte&>(buffer.storage.back()) = past_the_end;
  }
}

TEST(Edits, ReachTheProblemAndItsTwinsAlike) {
  std::int64_t edited = 0;
  for (std::int64_t index = 0; index < 200; ++index) {
    Draw draw = draw_of(9, index, Extent::small);
    const RandomProblem problem = draw_problem("flash_attention", draw);
    if (problem.edits.tensors.empty()) continue;
    tools::Built plain = problem.parsed.build(tools::Layout::contiguous);
    tools::Built changed = problem.parsed.build(tools::Layout::contiguous);
    apply(problem.edits, problem.object, changed);
    edited += changed.memory.differences(plain.memory.snapshot()).empty() ? 0 : 1;
  }
  EXPECT_GT(edited, 10);
}

}  // namespace
}  // namespace quire::test
