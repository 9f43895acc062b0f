// SPDX-License-Identifier: Apache-2.0
// The demo's parts, and that it notices a result which is wrong in one bit.
#include "tools/demo/demo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "tools/demo/agreement.h"
#include "tools/demo/batch.h"
#include "tools/demo/deepseek_stack.h"
#include "tools/demo/llama_stack.h"
#include "tools/demo/page_pool.h"
#include "tools/demo/referee.h"
#include "tools/demo/scheduler.h"
#include "tools/demo/server.h"
#include "tools/device/cuda.h"

namespace quire::tools::demo {
namespace {

// What a run of the scheduler did, with a fixed token in place of a model.
struct Trace {
  std::vector<Step> steps;
  std::vector<std::vector<TokenId>> generated;
  std::int64_t pages_left = 0;
  std::int64_t num_preemptions = 0;
  std::int64_t num_shared_tokens = 0;
  std::int64_t num_copied_tokens = 0;
  std::int64_t num_reuses = 0;
};

SchedulerOptions with_pages(std::int64_t num_pages) {
  return {.num_pages = num_pages, .page_size = 16, .token_budget = 48, .max_batch = 4};
}
const SchedulerOptions kOptions = with_pages(11);

Trace run_scheduler(const Workload& workload, const SchedulerOptions& options) {
  Scheduler scheduler(options, workload);
  Trace run;
  while (!scheduler.is_finished() && run.steps.size() < 1000) {
    run.steps.push_back(scheduler.next());
    const Step& step = run.steps.back();
    std::vector<TokenId> tokens;
    for (const ScheduledSequence& sequence : step.sequences) {
      tokens.push_back(static_cast<TokenId>(sequence.cache_length % 50));
    }
    scheduler.complete(step, tokens);
  }
  scheduler.drop_system_prompt();
  for (std::size_t r = 0; r < workload.requests.size(); ++r) {
    run.generated.push_back(scheduler.generated(static_cast<int>(r)));
  }
  run.pages_left = options.num_pages - scheduler.num_available();
  run.num_preemptions = scheduler.num_preemptions();
  run.num_shared_tokens = scheduler.num_shared_tokens();
  run.num_copied_tokens = scheduler.num_copied_tokens();
  run.num_reuses = scheduler.num_reuses();
  return run;
}

Workload plain_workload(std::vector<std::int64_t> prompts, std::int64_t max_new_tokens) {
  Workload workload;
  for (const std::int64_t length : prompts) {
    Request request{.max_new_tokens = max_new_tokens};
    for (std::int64_t i = 0; i < length; ++i) request.prompt.push_back(static_cast<TokenId>(i));
    workload.requests.push_back(request);
  }
  return workload;
}

class DemoSchedulerSeeds : public testing::TestWithParam<std::uint64_t> {
 protected:
  Workload workload = make_workload(10, 40, 64, GetParam());
  Trace run = run_scheduler(workload, kOptions);
};

TEST_P(DemoSchedulerSeeds, KeepsTheBudgetAndTheBatchSize) {
  for (const Step& step : run.steps) {
    EXPECT_LE(step.num_tokens(), kOptions.token_budget);
    EXPECT_LE(step.sequences.size(), static_cast<std::size_t>(kOptions.max_batch));
  }
}

TEST_P(DemoSchedulerSeeds, FinishesEveryRequestAndGetsEveryPageBack) {
  for (std::size_t r = 0; r < workload.requests.size(); ++r) {
    EXPECT_EQ(static_cast<std::int64_t>(run.generated[r].size()),
              workload.requests[r].max_new_tokens);
  }
  EXPECT_EQ(run.pages_left, 0);
  EXPECT_GT(run.num_reuses, 0);
}

TEST_P(DemoSchedulerSeeds, NeverGivesOnePageToTwoUnlessItIsTheSharedPrefix) {
  for (const Step& step : run.steps) {
    std::set<PageId> own;
    for (const ScheduledSequence& sequence : step.sequences) {
      for (std::size_t i = static_cast<std::size_t>(sequence.shared_pages);
           i < sequence.pages.size(); ++i) {
        EXPECT_TRUE(own.insert(sequence.pages[i]).second) << "step " << step.index;
      }
      const auto keys = sequence.cache_length + static_cast<std::int64_t>(sequence.tokens.size());
      EXPECT_GE(static_cast<std::int64_t>(sequence.pages.size()) * kOptions.page_size, keys);
      // New tokens never go into shared pages.
      EXPECT_GE(sequence.cache_length, sequence.shared_pages * kOptions.page_size);
    }
  }
}

// Whatever was cut, shared or preempted, position p of a request always holds the same token.
TEST_P(DemoSchedulerSeeds, FeedsEveryPositionWithItsToken) {
  for (const Step& step : run.steps) {
    for (const ScheduledSequence& sequence : step.sequences) {
      const auto r = static_cast<std::size_t>(sequence.request);
      std::vector<TokenId> known = workload.requests[r].prompt;
      known.insert(known.end(), run.generated[r].begin(), run.generated[r].end());
      ASSERT_LE(sequence.cache_length + static_cast<std::int64_t>(sequence.tokens.size()),
                static_cast<std::int64_t>(known.size()));
      EXPECT_TRUE(std::equal(sequence.tokens.begin(), sequence.tokens.end(),
                             known.begin() + sequence.cache_length));
    }
  }
}

TEST_P(DemoSchedulerSeeds, StartsNobodyBeforeItsArrival) {
  for (const Step& step : run.steps) {
    for (const ScheduledSequence& sequence : step.sequences) {
      const Request& request = workload.requests[static_cast<std::size_t>(sequence.request)];
      EXPECT_GE(step.index, request.arrival_step);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, DemoSchedulerSeeds, testing::Values(0, 3, 17, 24, 99));

TEST(DemoScheduler, MixesPromptsAndGenerationInOneBatch) {
  const Trace run = run_scheduler(make_workload(8, 32, 64, 17), kOptions);
  const auto is_mixed = [](const Step& step) {
    std::set<Phase> phases;
    for (const ScheduledSequence& sequence : step.sequences) phases.insert(sequence.phase);
    return phases.size() == 2;
  };
  EXPECT_GE(std::count_if(run.steps.begin(), run.steps.end(), is_mixed), 3);
}

TEST(DemoScheduler, CutsALongPromptIntoChunks) {
  const Trace run = run_scheduler(plain_workload({100}, 2), with_pages(8));
  ASSERT_EQ(run.steps.size(), 4u);
  EXPECT_EQ(run.steps[0].num_tokens(), 48);
  EXPECT_EQ(run.steps[1].num_tokens(), 48);
  EXPECT_EQ(run.steps[2].num_tokens(), 4);
  EXPECT_FALSE(run.steps[1].sequences[0].wants_token);
  EXPECT_TRUE(run.steps[2].sequences[0].wants_token);
  EXPECT_EQ(run.steps[3].sequences[0].phase, Phase::decode);
}

TEST(DemoScheduler, PreemptsTheYoungestAndLetsItReadAgain) {
  // Three pages each at the end, five in all: the second must give way to the first.
  const Trace run = run_scheduler(plain_workload({30, 30}, 8), with_pages(5));
  EXPECT_GE(run.num_preemptions, 1);
  EXPECT_EQ(run.pages_left, 0);
  for (const Step& step : run.steps) {
    for (const int request : step.preempted) EXPECT_EQ(request, 1);
  }
  EXPECT_EQ(run.generated[0].size(), 8u);
  EXPECT_EQ(run.generated[1].size(), 8u);
}

TEST(DemoScheduler, BreaksATieOfHalfReadPrompts) {
  // Both prompts are admitted in the first step and neither can finish beside the other.
  const SchedulerOptions narrow{.num_pages = 5, .page_size = 4, .token_budget = 16, .max_batch = 2};
  const Trace run = run_scheduler(plain_workload({14, 14}, 2), narrow);
  EXPECT_LT(run.steps.size(), 100u);
  EXPECT_EQ(run.generated[1].size(), 2u);
  EXPECT_EQ(run.pages_left, 0);
}

// Two whole pages of it are shared; where questions differ, the page of its last tokens is copied.
TEST(DemoScheduler, SharesTheSystemPromptAndCopiesItsLastTokens) {
  const Trace run = run_scheduler(make_workload(8, 40, 64, 17), with_pages(40));
  std::map<std::int64_t, std::set<PageId>> shared;  // by column
  int copied = 0;
  for (const Step& step : run.steps) {
    for (const ScheduledSequence& sequence : step.sequences) {
      EXPECT_TRUE(sequence.shared_pages == 0 || sequence.shared_pages == 2);
      for (std::int64_t i = 0; i < sequence.shared_pages; ++i) {
        shared[i].insert(sequence.pages[static_cast<std::size_t>(i)]);
      }
      const bool is_first = std::ranges::count(step.admitted, sequence.request) > 0;
      if (is_first && sequence.copied_tokens >= 8) ++copied;
    }
  }
  EXPECT_EQ(shared[0].size(), 1u);
  EXPECT_EQ(shared[1].size(), 1u);
  EXPECT_GT(copied, 0);
  EXPECT_GE(run.num_copied_tokens, 8 * copied);
  EXPECT_GE(run.num_shared_tokens, 40 * copied);
}

// Pages with a new owner are listed, those of a copy among them; what is shared is not.
TEST(DemoScheduler, ListsFreshPagesAndCopiesForEveryStep) {
  const Trace run = run_scheduler(make_workload(10, 40, 64, 17), kOptions);
  std::map<int, std::set<PageId>> known;  // of each request that runs
  std::size_t copies = 0;
  for (const Step& step : run.steps) {
    const std::set<PageId> fresh(step.fresh_pages.begin(), step.fresh_pages.end());
    for (const ScheduledSequence& sequence : step.sequences) {
      if (std::ranges::count(step.admitted, sequence.request) > 0) known[sequence.request].clear();
      for (std::size_t i = 0; i < sequence.pages.size(); ++i) {
        const bool is_new = known[sequence.request].insert(sequence.pages[i]).second;
        const bool is_shared = std::cmp_less(i, sequence.shared_pages);
        EXPECT_EQ(fresh.contains(sequence.pages[i]), is_new && !is_shared) << "step " << step.index;
      }
    }
    for (const PageCopy& copy : step.copies.on_device) {
      EXPECT_TRUE(fresh.contains(copy.target));
      EXPECT_FALSE(fresh.contains(copy.source));
    }
    copies += step.copies.on_device.size();
  }
  EXPECT_GT(copies, 0u);
}

TEST(DemoScheduler, RefusesARequestThatCannotFit) {
  EXPECT_THROW(Scheduler(with_pages(3), plain_workload({47}, 2)), std::invalid_argument);
  EXPECT_NO_THROW(Scheduler(with_pages(3), plain_workload({46}, 2)));
}

TEST(DemoBatch, SplitsThePageTableIntoPrefixAndSuffix) {
  PageManager pages({.groups = {{.page_size = 4}}, .pools = {{.pages = 9}}});
  const auto compute = [&](const std::vector<TokenId>& tokens) {
    const Admission made = pages.create(tokens);
    const auto rest = static_cast<std::int64_t>(tokens.size()) - made.cached_tokens;
    EXPECT_TRUE(pages.extend(made.id, rest));
    pages.advance(made.id, rest);
    return made.id;
  };
  const std::vector<TokenId> first{1, 2, 3, 4, 5, 6, 7, 8, 9};
  const SequenceId a = compute(first);   // pages 0, 1, 2
  const SequenceId b = compute({9, 9});  // page 3
  const Admission c = pages.create({{1, 2, 3, 4, 5, 6, 7, 8, 10, 11}});
  ASSERT_EQ(c.cached_tokens, 8);  // pages 0, 1; its own is page 4
  ASSERT_TRUE(pages.extend(c.id, 2));
  Step step;
  step.sequences.push_back(
      {.request = 0, .id = c.id, .cache_length = 8, .tokens = {10, 11}, .shared_pages = 2});
  step.sequences.push_back({.request = 1, .id = b, .cache_length = 2, .tokens = {7}});
  step.copies.on_device = {{.source = 2, .target = 4}};
  BatchTables tables(pages, 3, 4);
  pages.place(a, 1);  // of a step before
  tables.place(step);
  const Batch batch(step, tables);
  const auto row_major = [](const TensorView& view) {
    const auto* data = view.as<std::uint32_t>();
    return std::vector<std::uint32_t>(data, data + view.numel());
  };
  constexpr std::uint32_t kNone = kNoPage;
  using Entries = std::vector<std::uint32_t>;
  EXPECT_EQ(row_major(batch.page_table), (Entries{0, 1, 4, kNone, 3, kNone, kNone, kNone}));
  EXPECT_EQ(row_major(batch.prefix_table.view()),
            (Entries{0, 1, kNone, kNone, kNone, kNone, kNone, kNone}));
  EXPECT_EQ(row_major(batch.suffix_table.view()),
            (Entries{kNone, kNone, 4, kNone, 3, kNone, kNone, kNone}));
  EXPECT_EQ(row_major(batch.cache_lengths), (Entries{8, 2}));
  EXPECT_EQ(row_major(batch.copies.view()), (Entries{2, 4}));
  EXPECT_EQ(batch.last_rows, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(batch.max_new_tokens, 2);
}

Tensor floats(DType dtype, std::vector<float> values) {
  Matrix matrix(1, static_cast<std::int64_t>(values.size()));
  matrix.values = std::move(values);
  return to_tensor(matrix, dtype, {1, matrix.columns});
}

TEST(DemoAgreement, SeesOneBit) {
  const Tensor a = floats(DType::f32, {1.0f, 2.0f});
  const Tensor b = floats(DType::f32, {1.0f, std::nextafter(2.0f, 3.0f)});
  EXPECT_EQ(compare_outputs("out", a.view(), a.view(), {}, Closeness::bits), std::nullopt);
  const Fault fault = compare_outputs("out", b.view(), a.view(), {}, Closeness::bits);
  ASSERT_TRUE(fault);
  EXPECT_NE(fault->find("first [0, 1] is 2.0000002"), std::string::npos) << *fault;
}

TEST(DemoAgreement, ForgivesTwiceTheNaiveErrorButNotMore) {
  const Tensor exact = floats(DType::f32, {1.0f, -2.0f});
  const Tensor naive = floats(DType::f32, {1.001f, -2.0f});
  const Tensor close = floats(DType::f32, {1.0f, -2.0015f});
  const Tensor wrong = floats(DType::f32, {1.003f, -2.0f});
  const auto compare = [&](const Tensor& actual) {
    return compare_outputs("x", actual.view(), exact.view(), naive.view(), Closeness::tolerance);
  };
  EXPECT_FALSE(compare(close));
  EXPECT_TRUE(compare(wrong));
  EXPECT_TRUE(compare_outputs("x", close.view(), exact.view(), {}, Closeness::tolerance));
}

TEST(DemoAgreement, WantsTheSameNansAndInfinities) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor exact = floats(DType::f32, {nan, -infinity, 1.0f});
  const auto compare = [&](const Tensor& actual) {
    return compare_outputs("x", actual.view(), exact.view(), {}, Closeness::tolerance);
  };
  EXPECT_FALSE(compare(exact));
  EXPECT_TRUE(compare(floats(DType::f32, {0.0f, -infinity, 1.0f})));
  EXPECT_TRUE(compare(floats(DType::f32, {nan, infinity, 1.0f})));
  EXPECT_TRUE(compare(floats(DType::f32, {nan, -infinity, nan})));
}

// A pool of four pages and one sequence of six cached tokens on pages 2 and 0, with two new ones.
struct SmallCache {
  PagePool pool{{.num_pages = 4,
                 .page_size = 4,
                 .num_layers = 2,
                 .num_kv_heads = 1,
                 .is_mla = true,
                 .row_format = RowFormat::scaled(DType::fp8_e4m3, 8, 8)}};
  Tensor table = Tensor::of(std::vector<std::uint32_t>{2, 0});
  Tensor lengths = Tensor::of(std::vector<std::uint32_t>{6});
  Tensor row_offsets = Tensor::of(std::vector<std::uint32_t>{0, 2});
  Tensor x = Tensor::random(DType::bf16, {2, 1, 8}, "x", 5, 1.0);

  PagedKVCache cache() const { return pool.view(table.view({1, 2}), lengths.view()); }
  StoreArgs args() const {
    return {.x = x.view(), .row_offsets = row_offsets.view(), .cache = cache(), .layer = 1};
  }
};

// Results to the bit are promised for the reference kernels only.
const Context kReference{.kernel = "reference"};

TEST(DemoReferee, AcceptsAStoreIntoPoisonedPages) {
  const SmallCache small;
  Referee referee(kReference);
  referee.call(kStore, small.args());
  EXPECT_TRUE(referee.disagreements().empty());
  EXPECT_EQ(referee.records().at("store").agreed, 1);
  EXPECT_EQ(referee.records().at("store").tokens, 2);
}

TEST(DemoReferee, NoticesAWriteOutsideTheNewRows) {
  const SmallCache small;
  Op<StoreArgs> stray = kStore;
  stray.run = [](const StoreArgs& args, const Context& context) {
    store(args, context);
    args.cache.blocks.as<std::uint8_t>()[0] ^= 1;  // page 0, layer 0
  };
  Referee referee(kReference);
  referee.call(stray, small.args());
  ASSERT_EQ(referee.disagreements().size(), 1u);
  EXPECT_EQ(referee.disagreements()[0].where, "the cache was changed outside the new tokens' rows");
  EXPECT_EQ(referee.records().at("store").agreed, 0);
}

TEST(DemoReferee, NoticesAWrongRowAndAWrongScale) {
  const SmallCache small;
  Op<StoreArgs> wrong = kStore;
  wrong.run = [](const StoreArgs& args, const Context& context) {
    store(args, context);
    args.cache.key(1).row(0, 7, 0)[3] ^= std::byte{1};
  };
  Referee referee(kReference);
  referee.call(wrong, small.args());
  ASSERT_EQ(referee.disagreements().size(), 1u);
  EXPECT_TRUE(referee.disagreements()[0].where.starts_with(
      "cache key of sequence 0, token 7, head 0, column 3 is "))
      << referee.disagreements()[0].where;

  wrong.run = [](const StoreArgs& args, const Context& context) {
    store(args, context);
    args.cache.key(1).store_scale(0, 0, 6, 0, 2.0);
  };
  referee.call(wrong, small.args());
  EXPECT_EQ(referee.disagreements().size(), 2u);
}

// An op that calls itself another kernel's is held to the tolerance: one code of fp8 passes, a
// factor of two does not, and neither does a byte outside the rows.
TEST(DemoReferee, HoldsOtherKernelsToTheTolerance) {
  const SmallCache small;
  Op<StoreArgs> other = kStore;
  other.plan = [](const StoreArgs&, const Context&) {
    Plan plan;
    plan.kernel = "cpu/store";
    return plan;
  };
  other.run = [](const StoreArgs& args, const Context& context) {
    store(args, context);
    args.cache.key(1).row(0, 7, 0)[3] ^= std::byte{1};
  };
  Referee referee(kReference);
  referee.call(other, small.args());
  EXPECT_TRUE(referee.disagreements().empty());

  other.run = [](const StoreArgs& args, const Context& context) {
    store(args, context);
    const KvLayerView key = args.cache.key(1);
    key.store_scale(0, 0, 7, 0, 2.0 * key.load_scale(0, 0, 7, 0));
  };
  referee.call(other, small.args());
  EXPECT_EQ(referee.disagreements().size(), 1u);

  other.run = [](const StoreArgs& args, const Context& context) {
    store(args, context);
    args.cache.blocks.as<std::uint8_t>()[0] ^= 1;
  };
  referee.call(other, small.args());
  EXPECT_EQ(referee.disagreements().size(), 2u);
}

TEST(DemoReferee, NoticesAnOpThatForgetsToWrite) {
  const SmallCache small;
  Op<StoreArgs> lazy = kStore;
  lazy.run = [](const StoreArgs&, const Context&) {};
  Referee referee(kReference);
  referee.call(lazy, small.args());
  EXPECT_EQ(referee.disagreements().size(), 1u);
}

TEST(DemoPagePool, PoisonIsNanInRowsAndScales) {
  SmallCache small;
  Referee referee(kReference);
  referee.call(kStore, small.args());
  const KvLayerView key = small.cache().key(1);
  EXPECT_FALSE(std::isnan(key.load(0, 0, 7, 0)));
  small.pool.poison(0);  // holds the tokens 4 to 7
  EXPECT_TRUE(std::isnan(key.load_quantized(0, 0, 7, 0)));
  EXPECT_TRUE(std::isnan(key.load_scale(0, 0, 7, 0)));
}

TEST(DemoServer, GeneratesTheSameTokensAgain) {
  const Workload workload = make_workload(2, 32, 64, 17);
  std::vector<std::vector<TokenId>> generated[2];
  for (auto& result : generated) {
    LlamaStack stack(64, 11, 16, 17);
    Referee referee(kReference);
    for (const ServedRequest& request : serve(stack, workload, kOptions, referee).requests) {
      result.push_back(request.generated);
    }
  }
  EXPECT_EQ(generated[0], generated[1]);
  std::set<TokenId> distinct;
  for (const auto& tokens : generated[0]) distinct.insert(tokens.begin(), tokens.end());
  EXPECT_GT(distinct.size(), 3u);  // a model that reads its cache does not repeat one token
}

// On the reference kernels a request's tokens cannot depend on its neighbours or on where its pages
// are. No request here shares pages, so that no attention is split either.
TEST(DemoServer, GeneratesTheSameTokensAloneAndInCompany) {
  const Workload together = make_workload(3, 0, 64, 5);
  LlamaStack crowded(64, 8, 16, 5);
  Referee referee(kReference);
  const Summary summary = serve(crowded, together, with_pages(8), referee);
  for (std::size_t r = 0; r < together.requests.size(); ++r) {
    Workload alone{.system_prompt = {}, .requests = {together.requests[r]}};
    LlamaStack stack(64, 8, 16, 5);
    EXPECT_EQ(serve(stack, alone, with_pages(8), referee).requests[0].generated,
              summary.requests[r].generated);
  }
}

TEST(DemoServer, LeavesNoPageBehindAndSparseAttentionPrunes) {
  DeepseekStack stack(64, 11, 16, 17);
  Referee referee(kReference);
  const Summary summary = serve(stack, make_workload(2, 32, 64, 17), kOptions, referee);
  EXPECT_EQ(summary.pages_left, 0);
  EXPECT_TRUE(referee.disagreements().empty());
  ASSERT_EQ(stack.notes().size(), 1u);
  int selected = 0;
  int visible = 0;
  ASSERT_EQ(
      std::sscanf(stack.notes()[0].c_str(), "sparse attention read %d of %d", &selected, &visible),
      2);
  EXPECT_GT(selected, 0);
  EXPECT_LT(selected, visible);
}

TEST(DemoServer, NoticesAPageThatIsPoisonedWhileInUse) {
  LlamaStack stack(64, 11, 16, 17);
  Referee referee;
  const auto spoil = [&](const StepReport& report) {
    if (report.step.index == 1) stack.poison(report.step.sequences[0].pages[1]);
  };
  serve(stack, make_workload(1, 32, 64, 17), kOptions, referee, spoil);
  ASSERT_FALSE(referee.disagreements().empty());
  EXPECT_EQ(referee.disagreements()[0].op, "hidden state");
  EXPECT_EQ(referee.disagreements()[0].step, 2);
}

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  const std::size_t start = text.find_last_of('\n', end);
  return text.substr(start + 1, end - start);
}

TEST(Demo, AgreesWithTheOracleAndCallsEveryOp) {
  std::ostringstream out;
  EXPECT_EQ(run_demo({.num_requests = 2}, out), 0);
  EXPECT_EQ(last_line(out.str()), "every step agreed with the oracle");
  for (const std::string_view op : all_op_names()) {
    EXPECT_NE(out.str().find("\n  " + std::string(op) + " "), std::string::npos) << op;
  }
  EXPECT_EQ(out.str().find("not needed"), std::string::npos);
}

TEST(Demo, PrintsTheGeneratedTokensWhenAskedTo) {
  std::ostringstream out;
  run_demo({.num_requests = 1, .verbose = true}, out);
  EXPECT_NE(out.str().find("\n  A: prompt of "), std::string::npos);
}

TEST(Demo, ServesOnAGpuOrSaysWhyNot) {
  std::ostringstream out;
  if (why_no_cuda().empty()) {
    EXPECT_EQ(run_demo({.device = "cuda", .num_requests = 2}, out), 0) << out.str();
    EXPECT_NE(out.str().find("cuda/any/"), std::string::npos);
  } else {
    EXPECT_THROW(run_demo({.device = "cuda"}, out), std::runtime_error);
    EXPECT_TRUE(out.str().empty());
  }
}

TEST(Demo, RefusesANumberOfRequestsItCannotServe) {
  std::ostringstream out;
  EXPECT_THROW(run_demo({.num_requests = 0}, out), std::runtime_error);
  EXPECT_THROW(run_demo({.num_requests = 27}, out), std::runtime_error);
  EXPECT_TRUE(out.str().empty());
}

// Nothing may be shown as agreed when a run could not even go on.
TEST(Demo, ReportsAnOpThatRefuses) {
  const auto break_plan = [](std::string_view op, const TensorView& output) {
    if (op == "mla_prefill_plan" && output.dtype == DType::i32) output.as<std::int32_t>()[0] = -1;
  };
  std::ostringstream out;
  EXPECT_EQ(run_demo({.num_requests = 1, .saboteur = break_plan}, out), 1);
  EXPECT_NE(out.str().find(", mla_prefill: mla_prefill: 'chunks' must be"), std::string::npos)
      << out.str();
  EXPECT_EQ(last_line(out.str()), "2 disagreements with the oracle");
}

class DemoSabotage : public testing::TestWithParam<const char*> {};

TEST_P(DemoSabotage, OneWrongBitIsReportedAndTheExitCodeIsOne) {
  const std::string target = GetParam();
  bool is_done = false;
  const auto flip = [&](std::string_view op, const TensorView& output) {
    if (is_done || op != target) return;
    is_done = true;
    output.as<std::uint8_t>()[0] ^= 1;
  };
  std::ostringstream out;
  EXPECT_EQ(run_demo({.num_requests = 2, .kernel = "reference", .saboteur = flip}, out), 1);
  EXPECT_TRUE(is_done);
  EXPECT_NE(out.str().find(", " + target + ": "), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("DISAGREES"), std::string::npos);
  EXPECT_NE(last_line(out.str()), "every step agreed with the oracle");
}

// Whatever kernel serves it, a number that is plainly wrong must not pass.
TEST(Demo, ReportsAPlainlyWrongNumberOfTheBestKernel) {
  bool is_done = false;
  const auto spoil = [&](std::string_view op, const TensorView& output) {
    if (is_done || op != "flash_attention") return;
    is_done = true;
    output.store({0, 0, 0}, output.load({0, 0, 0}) + 1.0);
  };
  std::ostringstream out;
  EXPECT_EQ(run_demo({.num_requests = 1, .saboteur = spoil}, out), 1);
  EXPECT_NE(out.str().find("DISAGREES  Llama-style, step 0, flash_attention: 'out'"),
            std::string::npos)
      << out.str();
}

INSTANTIATE_TEST_SUITE_P(Ops, DemoSabotage,
                         testing::Values("fused_qkv_matmul", "flash_attention", "mla_prefill_plan",
                                         "mla_prefill", "mla_decode", "mla_indexer", "sparse_mla",
                                         "merge_states", "copy_pages"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace quire::tools::demo
