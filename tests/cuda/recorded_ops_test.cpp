// SPDX-License-Identifier: Apache-2.0
// What engines ask of a recorded op: replayed with other lengths, offsets and pages it does what a
// fresh call would do, bit for bit; and a hundred runs of it leave the same bits. Skipped where
// there is no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cuda/common/runtime/device_facts.h"
#include "device_state.h"
#include "device_twin.h"
#include "fused_qkv_subject.h"
#include "quire/ops/rope.h"
#include "quire/ops/store.h"
#include "tools/device/cuda/stream.h"

namespace quire::cuda {
namespace {

using test::DeviceState;

// Three sequences that share 58 rows; their pages are those of the cache below.
struct Lengths {
  std::vector<std::uint32_t> row_offsets;
  std::vector<std::uint32_t> cache_lengths;
  bool pages_swapped;  // sequences 0 and 2 trade their rows of the table
};

std::vector<Lengths> all_lengths() {
  return {{{0, 20, 20, 58}, {13, 4, 7}, false},
          {{0, 12, 22, 58}, {20, 3, 11}, false},
          {{0, 0, 30, 58}, {0, 9, 2}, true},
          {{0, 38, 39, 40}, {7, 1, 30}, true}};  // fewer tokens than rows: the rest is nobody's
}

// An op on the GPU, ready to run: a projection into the cache, a store, or a rope with norms.
struct Recorded {
  std::function<void(const Context&)> run;
  std::vector<TensorView> written;
  PagedKVCache cache;
  TensorView row_offsets;
};

// Everything an op of this file may need, on the host and on the GPU.
class Problem {
 public:
  Problem()
      : subject_({.name = "tiles",
                  .new_tokens = {20, 0, 38},
                  .hidden = 512,
                  .q_dim = 256,
                  .heads = 2,
                  .row = RowFormat::uniform(DType::bf16, 128)}),
        args_(twin_.move(subject_.args)),
        key_(test::HostTensor::random(DType::bf16, {58, 2, 128}, 31)),
        q_(test::HostTensor::random(DType::bf16, {58, 4, 128}, 32)),
        out_(test::HostTensor::random(DType::bf16, {58, 4, 128}, 33)),
        gamma_(test::HostTensor::random(DType::bf16, {128}, 34)),
        freqs_(test::HostTensor::random(DType::f32, {128, 128}, 35)) {}

  Recorded projection() {
    return {.run = [this](const Context& context) { fused_qkv_matmul(args_, context); },
            .written = {args_.cache.blocks, args_.out},
            .cache = args_.cache,
            .row_offsets = args_.row_offsets};
  }
  Recorded store_keys() {
    const StoreArgs args{.x = twin_.move(key_.view()),
                         .row_offsets = args_.row_offsets,
                         .cache = args_.cache,
                         .layer = 1};
    return {.run = [args](const Context& context) { store(args, context); },
            .written = {args_.cache.blocks},
            .cache = args_.cache,
            .row_offsets = args_.row_offsets};
  }
  Recorded normed_rope() {
    RopeArgs args{.q = twin_.move(q_.view()),
                  .row_offsets = args_.row_offsets,
                  .cache = args_.cache,
                  .layer = 1,
                  .freqs_cis = twin_.move(freqs_.view()),
                  .q_gamma = twin_.move(gamma_.view()),
                  .out = twin_.move(out_.view())};
    args.key_gamma = args.q_gamma;
    return {.run = [args](const Context& context) { rope(args, context); },
            .written = {args_.cache.blocks, args.out},
            .cache = args_.cache,
            .row_offsets = args_.row_offsets};
  }
  Plan plan_of_projection() const { return supports(args_); }
  const TensorView& page_table() const { return subject_.args.cache.page_table; }

 private:
  test::FusedQkvSubject subject_;
  test::DeviceTwin twin_;
  FusedQkvArgs args_;
  test::HostTensor key_, q_, out_, gamma_, freqs_;
};

void set_lengths(const Recorded& op, const TensorView& pages, const Lengths& lengths) {
  const std::int64_t columns = pages.shape[1];
  const auto* ids = pages.as<const std::uint32_t>();
  std::vector<std::uint32_t> table(ids, ids + pages.shape[0] * columns);
  if (lengths.pages_swapped) {
    std::swap_ranges(table.begin(), table.begin() + columns, table.begin() + 2 * columns);
  }
  test::upload(op.cache.page_table, table);
  test::upload(op.cache.cache_lengths, lengths.cache_lengths);
  test::upload(op.row_offsets, lengths.row_offsets);
}

std::string why_no_gpu() {
  return refuse_unless_sm90({.kind = DeviceKind::cuda, .index = 0});
}

class RecordedOps : public testing::TestWithParam<std::pair<std::string, Recorded (Problem::*)()>> {
 protected:
  void SetUp() override {
    if (!why_no_gpu().empty()) GTEST_SKIP() << why_no_gpu();
  }
};

TEST_P(RecordedOps, ReplayedWithOtherLengthsTheyDoWhatAFreshCallDoes) {
  Problem problem;
  const Recorded op = (problem.*GetParam().second)();
  const DeviceState state(op.written);
  const Stream stream;
  Context context;
  context.stream = stream.get();
  const Graph graph(stream, [&] { op.run(context); });
  EXPECT_TRUE(state.read() == state.start()) << "recording ran something";

  test::expect_replays_are_fresh_calls(
      state, all_lengths(),
      [&](const Lengths& lengths) { set_lengths(op, problem.page_table(), lengths); },
      [&] { op.run(context); }, [&] { graph.replay(stream); });
}

TEST_P(RecordedOps, LeaveTheSameBitsAHundredTimes) {
  Problem problem;
  const Recorded op = (problem.*GetParam().second)();
  const DeviceState state(op.written);
  op.run({});
  const DeviceState::Bytes first = state.read();
  EXPECT_FALSE(first == state.start());
  for (int run = 0; run < 100; ++run) {
    state.restore();
    op.run({});
    ASSERT_TRUE(state.read() == first) << "run " << run + 2;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, RecordedOps,
                         testing::Values(std::pair{"fused_qkv_matmul", &Problem::projection},
                                         std::pair{"store", &Problem::store_keys},
                                         std::pair{"rope", &Problem::normed_rope}),
                         [](const auto& test) { return test.param.first; });

// The projection above is one that the tile kernels take: otherwise they would go untested here.
TEST(RecordedProjection, IsOneOfTiles) {
  if (!why_no_gpu().empty()) GTEST_SKIP() << why_no_gpu();
  const Problem problem;
  EXPECT_EQ(problem.plan_of_projection().kernel, "cuda/sm90/fused_qkv_matmul");
}

}  // namespace
}  // namespace quire::cuda
