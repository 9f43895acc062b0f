// SPDX-License-Identifier: Apache-2.0
// The walk over an ordered list of kernels, with kernels of its own.
#include "ops/candidate.h"

#include <gtest/gtest.h>

namespace quire::ops {
namespace {

struct Problem {
  int width = 0;
};
struct Args {
  std::string* ran = nullptr;
};

constexpr Candidate<Problem, Args> kCandidates[] = {
    {.kernel = "hopper/sum",
     .takes = "widths of 128",
     .refuse = [](const Problem& p) -> std::string { return p.width == 128 ? "" : "width"; },
     .run = [](const Args& args, const Context&) { *args.ran += "hopper"; }},
    {.kernel = "cpu/avx2",
     .takes = "even widths",
     .refuse = [](const Problem& p) -> std::string { return p.width % 2 == 0 ? "" : "odd width"; },
     .run = [](const Args& args, const Context&) { *args.ran += "avx2"; }},
    {.kernel = "reference/sum",
     .takes = "widths below 1000",
     .refuse = [](const Problem& p) -> std::string { return p.width < 1000 ? "" : "too wide"; },
     .run = [](const Args& args, const Context&) { *args.ran += "reference"; }},
};

CandidateList<Problem, Args> list() {
  return kCandidates;
}

std::string run(int width, const std::string& kernel = "") {
  const Context context{.kernel = kernel};
  std::string ran;
  const Plan plan = choose("sum", list(), Problem{width}, context);
  run_planned(list(), plan, Args{&ran}, context);
  return ran;
}

TEST(CandidateTest, TheFirstThatTakesTheProblemRuns) {
  EXPECT_EQ(run(128), "hopper");
  EXPECT_EQ(run(64), "avx2");
  EXPECT_EQ(run(63), "reference");
}

TEST(CandidateTest, APrefixSkipsTheBetterOnes) {
  EXPECT_EQ(run(128, "cpu"), "avx2");
  EXPECT_EQ(run(128, "cpu/avx2"), "avx2");
  EXPECT_EQ(run(128, "reference"), "reference");
}

TEST(CandidateTest, RefusalsOfTheBetterOnesAreKeptInOrder) {
  const Plan plan = choose("sum", list(), Problem{63}, {});
  EXPECT_EQ(plan.describe(),
            "sum: reference/sum; hopper/sum refuses: width; cpu/avx2 refuses: odd width");
}

TEST(CandidateTest, WithoutAKernelTheNearestIsNamed) {
  const Plan plan = choose("sum", list(), Problem{1001}, {});
  EXPECT_FALSE(plan.supported());
  EXPECT_EQ(plan.refusals.size(), 3u);
  EXPECT_EQ(plan.nearest, "reference/sum takes widths below 1000");
  try {
    run(1001);
    FAIL() << "ran";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_EQ(error.op(), "sum");
    EXPECT_STREQ(error.what(),
                 "sum: 'problem' must be one that a kernel takes (reference/sum takes widths below "
                 "1000), got hopper/sum refuses: width; cpu/avx2 refuses: odd width; reference/sum "
                 "refuses: too wide");
  }
}

TEST(CandidateTest, AnUnknownKernelIsUnsupported) {
  const Plan plan = choose("sum", list(), Problem{128}, {.kernel = "cpu/avx512"});
  EXPECT_FALSE(plan.supported());
  EXPECT_EQ(plan.refusals[0].reason, "context.kernel is 'cpu/avx512'");
  EXPECT_THROW(run(128, "cpu/avx512"), Error);
}

}  // namespace
}  // namespace quire::ops
