// SPDX-License-Identifier: Apache-2.0
// A prepared call checks its arguments as the one-call form does: what is wrong has the same error, before anything is
// written, whatever the arguments were when the kernel was made.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "ops/sample.h"
#include "ops/sample_attention.h"
#include "ops/spoilers.h"
#include "quire/error.h"

namespace quire::test {
namespace {

constexpr const char* kOtherProblem =
    "'arguments' must be of the problem that was prepared, got those of another one";

// What an error says; empty: there was none.
template <typename Function> std::string error_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class PreparedTest : public testing::TestWithParam<NamedSample> {
 protected:
  // A sample is prepared, then changed. Gives the error of its call, which is that of the one-call form.
  template <typename Change> std::string expect_same_error(Change change) {
    const std::unique_ptr<Sample> sample = GetParam().make();
    const Sample::Call call = sample->prepare({});
    change(*sample);
    const Arena::Snapshot before = sample->arena.snapshot();
    std::string wanted = error_of([&] { sample->supports({}); });
    if (wanted.empty()) return wanted;
    EXPECT_EQ(error_of([&] { call({}); }), wanted);
    EXPECT_TRUE(before == sample->arena.snapshot()) << "something was written";
    return wanted;
  }
};

TEST_P(PreparedTest, WritesTheBytesOfTheOneCallForm) {
  const std::unique_ptr<Sample> one_call = GetParam().make();
  const std::unique_ptr<Sample> prepared = GetParam().make();
  const Sample::Call call = prepared->prepare({});
  one_call->run({});
  call({});
  EXPECT_TRUE(one_call->arena.snapshot() == prepared->arena.snapshot());
}

TEST_P(PreparedTest, EveryTensorIsCheckedAgain) {
  for (const auto& [name, unused] : GetParam().make()->tensors()) {
    for (const Spoiler& spoiler : kSpoilers) {
      SCOPED_TRACE(name + " " + spoiler.name);
      const auto spoil = [&, &tensor = name](Sample& sample) {
        spoiler.spoil(sample.tensor(tensor));
      };
      EXPECT_NE(expect_same_error(spoil), "");
    }
  }
}

// Shapes, strides and dtypes are those of the prepared problem.
TEST_P(PreparedTest, AnOutputThatCameToOverlapIsRefused) {
  const std::unique_ptr<Sample> sample = GetParam().make();
  int refused = 0;
  for (const std::string& output : sample->written()) {
    for (const auto& [other, view] : sample->tensors()) {
      if (other == output || view->numel() == 0) continue;
      SCOPED_TRACE(output + " over " + other);
      const std::string error = expect_same_error([&, &name = other](Sample& changed) {
        changed.tensor(output).data = changed.tensor(name).data;
      });
      refused += static_cast<int>(error.find("in memory") != std::string::npos);
    }
  }
  EXPECT_GT(refused, 0);
}

TEST_P(PreparedTest, TablesOnTheHostAreReadAgain) {
  struct Edit {
    const char* tensor;
    std::initializer_list<std::int64_t> index;
    double value;
  };
  const Edit edits[] = {{"row_offsets", {0}, 1},
                        {"row_offsets", {1}, 9},
                        {"cache.cache_lengths", {1}, 1000},
                        {"key_lengths", {1}, 1000},
                        {"key_offsets", {1}, 9},
                        {"cache.page_table", {0, 0}, 77},
                        {"cache.scales_page_table", {0, 0}, 77}};
  for (const Edit& edit : edits) {
    bool has_tensor = false;
    for (const auto& [name, unused] : GetParam().make()->tensors())
      has_tensor |= name == edit.tensor;
    if (!has_tensor) continue;
    SCOPED_TRACE(edit.tensor);
    const std::string error = expect_same_error(
        [&](Sample& sample) { sample.tensor(edit.tensor).store(edit.index, edit.value); });
    // Pages are copied without a batch; with keys of their own, sequences may have been any length.
    const bool is_position = edit.tensor == std::string("cache.cache_lengths") &&
                             GetParam().name == "flash_attention_keys";
    EXPECT_EQ(error.empty(), is_position || GetParam().name.starts_with("copy_pages")) << error;
  }
}

TEST_P(PreparedTest, AnotherDeviceIsAnotherProblem) {
  const std::unique_ptr<Sample> sample = GetParam().make();
  const Sample::Call call = sample->prepare({});
  sample->move_to_gpu();
  EXPECT_EQ(error_of([&] { call({}); }), sample->op + ": " + kOtherProblem);
}

INSTANTIATE_TEST_SUITE_P(Samples, PreparedTest, testing::ValuesIn(all_samples()),
                         [](const auto& info) { return info.param.name; });

TEST(PreparedAttentionTest, ShorterSequencesFitAndLongerOnesDoNot) {
  FlashAttentionSample sample;
  const auto prepared = prepare(validate(sample.args));
  const TensorView& lengths = sample.args.cache.cache_lengths;
  lengths.store({0}, 2);
  run(prepared, sample.args);
  FlashAttentionSample one_call;
  one_call.args.cache.cache_lengths.store({0}, 2);
  flash_attention(one_call.args);
  EXPECT_TRUE(sample.arena.snapshot() == one_call.arena.snapshot());
  lengths.store({0}, 4);
  EXPECT_EQ(error_of([&] { run(prepared, sample.args); }),
            std::string("flash_attention: ") + kOtherProblem);
}

TEST(PreparedAttentionTest, ThreadsShareAKernelAndNoArguments) {
  const FlashAttentionSample first;
  const auto prepared = prepare(validate(first.args), {.num_threads = 1});
  FlashAttentionSample right;
  flash_attention(right.args, {.num_threads = 1});
  std::atomic<int> wrong{0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      FlashAttentionSample own;
      for (int i = 0; i < 50; ++i) {
        run(prepared, own.args, {.num_threads = 1});
        FlashAttentionArgs bad = own.args;
        bad.out.data = bad.q.data;
        if (error_of([&] { run(prepared, bad, {.num_threads = 1}); }).empty()) ++wrong;
      }
      if (!(own.arena.snapshot() == right.arena.snapshot())) ++wrong;
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace quire::test
