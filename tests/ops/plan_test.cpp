// SPDX-License-Identifier: Apache-2.0
// supports, plan, Context::kernel and QUIRE_LOG, for every op.
#include <gtest/gtest.h>

#include <cstdlib>

#include "ops/bad_input.h"
#include "ops/sample.h"
#include "ops/sample_attention.h"
#include "ops/sample_cache_ops.h"

namespace quire::test {
namespace {

// Sets QUIRE_LOG for one scope.
class LogSetting {
 public:
  explicit LogSetting(const char* value) { setenv("QUIRE_LOG", value, 1); }
  ~LogSetting() { unsetenv("QUIRE_LOG"); }
  LogSetting(const LogSetting&) = delete;
  LogSetting& operator=(const LogSetting&) = delete;
};

class PlanTest : public testing::TestWithParam<NamedSample> {
 protected:
  std::unique_ptr<Sample> sample = GetParam().make();
  // rms_norm is one kernel with two names.
  std::string kernel() const {
    return "reference/" + (sample->op.starts_with("rms_norm") ? "rms_norm" : sample->op);
  }
};

TEST_P(PlanTest, TheReferenceTakesWhatIsOnTheHost) {
  const Arena::Snapshot before = sample->arena.snapshot();
  const Plan plan = sample->supports({.kernel = "reference"});
  EXPECT_EQ(plan.op, sample->op);
  EXPECT_EQ(plan.kernel, kernel());
  EXPECT_EQ(plan.nearest, "");
  for (const Refusal& refusal : plan.refusals) {
    EXPECT_EQ(refusal.reason, "context.kernel is 'reference'") << refusal.kernel;
  }
  EXPECT_TRUE(plan.describe().starts_with(sample->op + ": " + kernel()));
  EXPECT_TRUE(before == sample->arena.snapshot()) << "supports has written";
}

TEST_P(PlanTest, TheFirstCandidateThatDoesNotRefuseIsTaken) {
  const Plan plan = sample->supports({});
  const Plan all = sample->supports({.kernel = "no such kernel"});  // lists every candidate
  ASSERT_LT(plan.refusals.size(), all.refusals.size());
  EXPECT_EQ(plan.kernel, all.refusals[plan.refusals.size()].kernel);
  for (const Refusal& refusal : plan.refusals) EXPECT_NE(refusal.reason, "") << refusal.kernel;
}

TEST_P(PlanTest, APlanForTheGpuListsRefusalsAndTheNearestProblem) {
  sample->move_to_gpu();
  const Plan plan = sample->supports({});
  EXPECT_FALSE(plan.supported());
  ASSERT_FALSE(plan.refusals.empty());
  EXPECT_EQ(plan.refusals.back().kernel, kernel());
  EXPECT_EQ(plan.refusals.back().reason, "tensors are on cuda:0");
  EXPECT_EQ(plan.nearest, kernel() + " takes any valid problem on cpu");
  EXPECT_TRUE(plan.describe().starts_with(sample->op + ": no kernel; "));
  EXPECT_TRUE(plan.describe().ends_with(
      kernel() + " refuses: tensors are on cuda:0; nearest: " + plan.nearest));
}

TEST_P(PlanTest, AnUnsupportedProblemThrowsAndWritesNothing) {
  sample->move_to_gpu();
  expect_refusal(*sample, ErrorCode::unsupported, "problem",
                 kernel() + " refuses: tensors are on cuda:0");
}

TEST_P(PlanTest, ContextKernelRestrictsByPrefix) {
  const Context unknown{.kernel = "cpu/none"};
  EXPECT_EQ(sample->supports({.kernel = "reference"}).kernel, kernel());
  EXPECT_EQ(sample->supports({.kernel = kernel()}).kernel, kernel());
  const Plan plan = sample->supports(unknown);
  EXPECT_FALSE(plan.supported());
  for (const Refusal& refusal : plan.refusals) {
    EXPECT_EQ(refusal.reason, "context.kernel is 'cpu/none'") << refusal.kernel;
  }
  expect_refusal(*sample, ErrorCode::unsupported, "problem", "context.kernel is 'cpu/none'",
                 unknown);
}

TEST_P(PlanTest, ABadContextIsAnError) {
  expect_refusal(*sample, ErrorCode::invalid_value, "context.num_threads", "got -1",
                 {.num_threads = -1});
  expect_refusal(*sample, ErrorCode::invalid_value, "context.num_threads", "to 1024, got 1000000",
                 {.num_threads = 1'000'000});
  expect_refusal(*sample, ErrorCode::invalid_value, "context.workspace_bytes", "got -8",
                 {.workspace_bytes = -8});
}

TEST_P(PlanTest, LogPrintsThePlanOfEveryRun) {
  const LogSetting log("plan");
  testing::internal::CaptureStderr();
  const Context reference{.kernel = "reference"};
  sample->run(reference);
  const std::string logged = testing::internal::GetCapturedStderr();
  EXPECT_EQ(logged, "quire: " + sample->supports(reference).describe() + "\n");
}

INSTANTIATE_TEST_SUITE_P(Samples, PlanTest, testing::ValuesIn(all_samples()),
                         [](const auto& info) { return info.param.name; });

std::string log_of_one_run(const char* setting) {
  const LogSetting log(setting);
  FlashAttentionSample sample;
  testing::internal::CaptureStderr();
  sample.run({});
  return testing::internal::GetCapturedStderr();
}

TEST(PlanLogTest, IsReadFromAList) {
  EXPECT_NE(log_of_one_run("time,plan"), "");
  EXPECT_NE(log_of_one_run("plan,time"), "");
  EXPECT_EQ(log_of_one_run("plans"), "");
  EXPECT_EQ(log_of_one_run("time"), "");
  EXPECT_EQ(log_of_one_run(""), "");
}

TEST(PlanLogTest, PrintsWhyNothingRuns) {
  const LogSetting log("plan");
  FlashAttentionSample sample;
  sample.move_to_gpu();
  testing::internal::CaptureStderr();
  EXPECT_THROW(sample.run({}), Error);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("refuses: tensors are on cuda:0"),
            std::string::npos);
}

TEST(PlanDescribeTest, IsOneStableLine) {
  Plan plan;
  plan.op = "flash_attention";
  plan.kernel = "cpu/avx2";
  plan.workspace_bytes = 4096;
  plan.choices = {{"tile_q", "128"}, {"splits", "4"}};
  plan.refusals = {{.kernel = "cuda/sm90/flash_attention", .reason = "tensors are on cpu"}};
  EXPECT_EQ(plan.describe(),
            "flash_attention: cpu/avx2, tile_q=128, splits=4, workspace 4096 B; "
            "cuda/sm90/flash_attention refuses: tensors are on cpu");
}

TEST(ProblemTest, HoldsTheFactsOfTheArguments) {
  FlashAttentionSample sample;
  sample.args.softcap = 30.0;
  const FlashAttentionProblem problem = validate(sample.args);
  EXPECT_EQ(problem.ragged.tokens, 5);
  EXPECT_EQ(problem.ragged.batch, 2);
  EXPECT_EQ(problem.ragged.max_new_tokens, 3);
  EXPECT_EQ(problem.ragged.max_keys, 5);
  EXPECT_EQ(problem.ragged.total_keys, 8);
  EXPECT_EQ(problem.cache.num_pages, 6);
  EXPECT_EQ(problem.cache.page_size, 4);
  EXPECT_TRUE(problem.cache.rows_are_dense);
  EXPECT_FALSE(problem.cache.has_scales);
  EXPECT_EQ(problem.heads, 4);
  EXPECT_EQ(problem.mask, Mask::causal().summary());
  EXPECT_TRUE(problem.has_softcap && problem.has_alibi && problem.has_sinks && problem.wants_lse);
}

TEST(ProblemTest, OffTheHostLengthsAreTheCachesBounds) {
  FlashAttentionSample sample;
  sample.move_to_gpu();
  EXPECT_EQ(validate(sample.args).ragged.max_new_tokens, -1);
  EXPECT_EQ(validate(sample.args).ragged.max_keys, -1);
  sample.args.cache.max_seq_length = 16;
  sample.args.cache.max_cache_length = 4096;
  EXPECT_EQ(validate(sample.args).ragged.max_new_tokens, 16);
  EXPECT_EQ(validate(sample.args).ragged.max_keys, 4096);
  EXPECT_EQ(validate(sample.args).ragged.total_keys, -1);
}

}  // namespace
}  // namespace quire::test
