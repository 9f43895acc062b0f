// SPDX-License-Identifier: Apache-2.0
// The walk over an ordered list of kernels, with kernels of its own.
#include "ops/candidate.h"

#include <gtest/gtest.h>

#include "quire/workspace.h"

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
     .refuse = [](const Problem& p) -> std::string { return p.width % 128 == 0 ? "" : "width"; },
     .run = [](const Args& args, const Context&) { *args.ran += "hopper"; },
     .workspace_bytes = [](const Problem& p) -> std::int64_t { return p.width - 128; },
     .choices =
         [](const Problem& p) {
           return Choices{{"width", std::to_string(p.width)}};
         }},
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

TEST(CandidateTest, ThePlanSaysWhatTheKernelChoseAndNeeds) {
  const Plan plan = choose("sum", list(), Problem{256}, {});
  EXPECT_EQ(plan.workspace_bytes, 128);
  EXPECT_EQ(plan.describe(), "sum: hopper/sum, width=256, workspace 128 B");
  EXPECT_EQ(choose("sum", list(), Problem{64}, {}).workspace_bytes, 0);
}

TEST(CandidateTest, AKernelThatNeedsScratchDoesNotRunWithoutIt) {
  const Plan plan = choose("sum", list(), Problem{256}, {});
  alignas(kWorkspaceAlignment) std::byte scratch[129];
  std::string ran;
  const auto run_with = [&](void* workspace, std::int64_t bytes) {
    run_planned(list(), plan, Args{&ran}, {.workspace = workspace, .workspace_bytes = bytes});
  };
  EXPECT_THROW(run_with(nullptr, 128), Error);
  EXPECT_THROW(run_with(scratch, 127), Error);
  EXPECT_THROW(run_with(scratch + 1, 128), Error) << "not aligned";
  EXPECT_EQ(ran, "");
  run_with(scratch, 128);
  EXPECT_EQ(ran, "hopper");
}

}  // namespace
}  // namespace quire::ops
