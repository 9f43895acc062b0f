// SPDX-License-Identifier: Apache-2.0
// The walk over an ordered list of kernels, the memory of plans and prepared problems, with kernels of its own.
#include "ops/dispatch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "quire/error.h"
#include "quire/workspace.h"

namespace quire::ops {
namespace {

struct SumProblem {
  Device device{};
  RaggedSize ragged{};
  std::int64_t width = 0;

  bool operator==(const SumProblem&) const = default;
};
struct SumArgs {
  std::string* ran = nullptr;
};

std::atomic<int> num_made{0};  // kernels

class CudaSum final : public Kernel<SumArgs> {
 public:
  explicit CudaSum(const SumProblem& problem) : width_(problem.width) { ++num_made; }
  std::int64_t workspace_bytes() const override { return width_ - 128; }
  Choices choices() const override { return {{"width", std::to_string(width_)}}; }
  void run(const SumArgs& args, const Context& context) const override {
    *args.ran += context.workspace == nullptr ? "cuda" : "cuda with scratch";
  }

 private:
  std::int64_t width_;
};

using SumDispatch = Dispatch<SumProblem, SumArgs>;

SumDispatch make_dispatch() {
  return SumDispatch(
      "sum",
      {.cuda = {{.kernel = "cuda/sum",
                 .takes = "widths of 128",
                 .refuse = [](const SumProblem& p) -> std::string {
                   return p.width % 128 == 0 ? "" : "width";
                 },
                 .prepare =
                     [](const SumProblem& p) { return std::make_unique<const CudaSum>(p); }}},
       .refuse_on_cpu = [](const SumProblem& p, cpu::Target) -> std::string {
         return p.width % 2 == 0 ? "" : "odd width";
       },
       .run_on_cpu = [](const SumArgs& args, const Context&,
                        cpu::Target target) { *args.ran += cpu::name(target); },
       .run_reference = [](const SumArgs& args) { *args.ran += "reference"; },
       .refuse_reference = [](const SumProblem& p) -> std::string {
         return p.width < 1000 ? "" : "too wide";
       }});
}

std::string best_target() {
  for (const cpu::Target target : cpu::compiled_targets()) {
    if (cpu::why_not(target).empty()) return std::string(cpu::name(target));
  }
  return "";
}

class DispatchTest : public testing::Test {
 protected:
  Prepared<SumProblem> prepare(std::int64_t width, const Context& context = {}) const {
    return dispatch_.prepare("sum", {.width = width}, context);
  }
  std::string run(std::int64_t width, const std::string& kernel = "") const {
    const Context context{.kernel = kernel};
    std::string ran;
    dispatch_.run(prepare(width, context), SumArgs{&ran}, context);
    return ran;
  }

  SumDispatch dispatch_ = make_dispatch();
};

TEST_F(DispatchTest, TheFirstThatTakesTheProblemRuns) {
  EXPECT_EQ(run(128), "cuda");
  EXPECT_EQ(run(64), best_target());
  EXPECT_EQ(run(63), "reference");
}

TEST_F(DispatchTest, APrefixSkipsTheBetterOnes) {
  EXPECT_EQ(run(128, "cpu"), best_target());
  EXPECT_EQ(run(128, "cpu/portable"), "portable");
  EXPECT_EQ(run(128, "reference"), "reference");
}

TEST_F(DispatchTest, RefusalsOfTheBetterOnesAreKeptInOrder) {
  const Plan plan = prepare(63).plan();
  EXPECT_EQ(plan.kernel, "reference/sum");
  ASSERT_EQ(plan.refusals.size(), 8u);  // of cuda and the seven targets
  EXPECT_EQ(plan.refusals.front().kernel, "cuda/sum");
  EXPECT_EQ(plan.refusals.front().reason, "width");
  EXPECT_EQ(plan.refusals.back().kernel, "cpu/portable/sum");
  EXPECT_EQ(plan.refusals.back().reason, "odd width");
}

TEST_F(DispatchTest, WithoutAKernelTheNearestIsNamed) {
  const Plan plan = prepare(1001).plan();
  EXPECT_FALSE(plan.supported());
  EXPECT_EQ(plan.nearest, "reference/sum takes any valid problem on cpu");
  try {
    run(1001);
    FAIL() << "ran";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_EQ(error.op(), "sum");
    EXPECT_NE(std::string(error.what()).find("reference/sum refuses: too wide"), std::string::npos);
  }
}

TEST_F(DispatchTest, AnUnknownKernelIsUnsupported) {
  const Plan plan = prepare(128, {.kernel = "cpu/sse"}).plan();
  EXPECT_FALSE(plan.supported());
  EXPECT_EQ(plan.refusals[0].reason, "context.kernel is 'cpu/sse'");
  EXPECT_THROW(run(128, "cpu/sse"), Error);
}

TEST_F(DispatchTest, ThePlanSaysWhatTheKernelChoseAndNeeds) {
  const Plan plan = prepare(256).plan();
  EXPECT_EQ(plan.workspace_bytes, 128);
  EXPECT_EQ(plan.describe(), "sum: cuda/sum, width=256, workspace 128 B");
  EXPECT_EQ(prepare(64).plan().workspace_bytes, 0);
}

TEST_F(DispatchTest, AKernelThatNeedsScratchDoesNotRunWithoutIt) {
  alignas(kWorkspaceAlignment) std::byte scratch[129];
  std::string ran;
  const auto run_with = [&](void* workspace, std::int64_t bytes) {
    dispatch_.run(prepare(256), SumArgs{&ran}, {.workspace = workspace, .workspace_bytes = bytes});
  };
  EXPECT_THROW(run_with(nullptr, 128), Error);
  EXPECT_THROW(run_with(scratch, 127), Error);
  EXPECT_THROW(run_with(scratch + 1, 128), Error) << "not aligned";
  EXPECT_EQ(ran, "");
  run_with(scratch, 128);
  EXPECT_EQ(ran, "cuda with scratch");
}

struct Allocations {
  alignas(kWorkspaceAlignment) std::byte memory[128];
  std::vector<std::int64_t> asked{};

  static void* allocate(void* user, std::int64_t bytes) {
    auto& self = *static_cast<Allocations*>(user);
    self.asked.push_back(bytes);
    return self.memory;
  }
};

TEST_F(DispatchTest, AnAllocatorIsAskedOnceAndOnlyForScratchThatIsNeeded) {
  Allocations allocations{};
  const Context context{.workspace_allocator = {Allocations::allocate, &allocations}};
  std::string ran;
  dispatch_.run(prepare(128), SumArgs{&ran}, context);
  EXPECT_TRUE(allocations.asked.empty());
  dispatch_.run(prepare(256), SumArgs{&ran}, context);
  EXPECT_EQ(allocations.asked, std::vector<std::int64_t>{128});
  EXPECT_EQ(ran, "cudacuda with scratch");
}

TEST_F(DispatchTest, AProblemIsPlannedOnce) {
  const int before = num_made;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(run(128), "cuda");
  EXPECT_EQ(num_made, before + 1);
  EXPECT_EQ(run(128, "cpu"), best_target()) << "another context.kernel is another plan";
  EXPECT_EQ(run(128), "cuda");
  EXPECT_EQ(num_made, before + 1);
}

TEST_F(DispatchTest, AForcedTargetIsAnotherPlan) {
  EXPECT_EQ(run(64), best_target());
  setenv("QUIRE_CPU_TARGET", "portable", 1);
  EXPECT_EQ(run(64), "portable");
  unsetenv("QUIRE_CPU_TARGET");
  EXPECT_EQ(run(64), best_target());
}

TEST(PlanMemoryTest, HoldsTheLastOnesAndNoMore) {
  using Memory = PlanMemory<SumProblem>;
  Memory memory;
  const auto state_of = [](std::int64_t width) {
    return std::make_shared<const Prepared<SumProblem>::State>(
        Prepared<SumProblem>::State{.problem = {.width = width}, .plan = {}, .kernel = nullptr});
  };
  constexpr std::int64_t kMost = Memory::kMost;
  for (std::int64_t width = 0; width < kMost; ++width) memory.remember({}, state_of(width));
  ASSERT_NE(memory.find({.width = 0}, {}), nullptr);  // the newest now
  for (std::int64_t width = kMost; width < 2 * kMost - 1; ++width) {
    memory.remember({}, state_of(width));
  }
  EXPECT_EQ(memory.size(), Memory::kMost);
  EXPECT_NE(memory.find({.width = 0}, {}), nullptr);
  EXPECT_EQ(memory.find({.width = 1}, {}), nullptr);
  EXPECT_EQ(memory.find({.width = 0}, {.kernel = "cpu", .cpu_target = ""}), nullptr);
}

TEST_F(DispatchTest, ThreadsShareTheMemory) {
  std::vector<std::jthread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        const std::int64_t width = 2 * ((i * (t + 3)) % 100 + 1);
        if (prepare(width).problem().width != width) ++wrong;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

TEST_F(DispatchTest, APreparedProblemRunsWhatFitsAndNothingElse) {
  const SumProblem problem{.ragged = {.tokens = 4, .batch = 4, .max_keys = 100}, .width = 128};
  const Prepared<SumProblem> prepared = dispatch_.prepare("sum", problem, {});
  std::string ran;
  const auto run_other = [&](auto change) {
    SumProblem other = problem;
    change(other);
    dispatch_.run_checked(prepared, other, SumArgs{&ran}, {});
  };
  run_other([](SumProblem&) {});
  run_other([](SumProblem& p) { p.ragged.max_keys = 99; });  // shorter
  EXPECT_EQ(ran, "cudacuda");
  EXPECT_THROW(run_other([](SumProblem& p) { p.ragged.max_keys = 101; }), Error);
  EXPECT_THROW(run_other([](SumProblem& p) { p.ragged.max_keys = -1; }), Error);
  EXPECT_THROW(run_other([](SumProblem& p) { p.ragged.tokens = 3; }), Error);
  EXPECT_THROW(run_other([](SumProblem& p) { p.width = 256; }), Error);
  EXPECT_EQ(ran, "cudacuda");
}

}  // namespace
}  // namespace quire::ops
