// SPDX-License-Identifier: Apache-2.0
// QUIRE_CHECK=1: wrong values in GPU memory are reported as those in host memory are. Skipped where
// there is no GPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "cuda/common/runtime/device_facts.h"
#include "device_state.h"
#include "device_twin.h"
#include "quire/error.h"
#include "quire/ops/copy_pages.h"
#include "quire/ops/rope.h"
#include "quire/ops/store.h"
#include "support/cache_builder.h"
#include "support/host_tensor.h"
#include "tools/device/cuda/stream.h"

namespace quire::cuda {
namespace {

using test::HostTensor;
using test::TestCache;

class DeviceCheck : public testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = refuse_unless_sm80({.kind = DeviceKind::cuda, .index = 0});
    if (!reason.empty()) GTEST_SKIP() << reason;
    setenv("QUIRE_CHECK", "1", 1);
    args_.x = twin_.move(x_.view());
    args_.row_offsets = twin_.move(cache_.row_offsets());
    args_.cache = cache_.view();
    for (TensorView* view :
         {&args_.cache.blocks, &args_.cache.cache_lengths, &args_.cache.page_table}) {
      *view = twin_.move(*view);
    }
  }
  void TearDown() override { unsetenv("QUIRE_CHECK"); }

  template <typename Op> static std::string error_of(Op op) {
    try {
      op();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  std::string store_error() {
    return error_of([&] { store(args_); });
  }

  // Two sequences of 3 and 2 new tokens; pages of 4 tokens.
  TestCache cache_{{.cache_lengths = {2, 5}, .new_tokens = {3, 2}}};
  HostTensor x_ = HostTensor::random(DType::f32, {5, 2, 8}, 1);
  test::DeviceTwin twin_;
  StoreArgs args_;
};

TEST_F(DeviceCheck, RightValuesPass) {
  EXPECT_EQ(store_error(), "");
}

TEST_F(DeviceCheck, OffsetsThatStepBack) {
  test::upload(args_.row_offsets, {0, 6, 5});
  EXPECT_EQ(store_error(), "store: 'row_offsets' must be monotone, at least 6 at [2], got 5");
}

TEST_F(DeviceCheck, OffsetsThatEndElsewhere) {
  test::upload(args_.row_offsets, {0, 3, 4});
  EXPECT_EQ(store_error(), "store: 'row_offsets' must be 5, the number of tokens, at [2], got 4");
}

TEST_F(DeviceCheck, APageIdThatIsNone) {
  std::vector<std::uint32_t> ids(static_cast<std::size_t>(args_.cache.page_table.numel()), 0);
  ids[1] = static_cast<std::uint32_t>(args_.cache.num_pages()) + 3;
  test::upload(args_.cache.page_table, ids);
  EXPECT_NE(store_error().find("store: 'cache.page_table' must be a page id below"),
            std::string::npos);
  EXPECT_NE(store_error().find("in sequence 0, column 1"), std::string::npos);
}

TEST_F(DeviceCheck, NothingIsWrittenAfterAnError) {
  const test::DeviceState state({args_.cache.blocks});
  test::upload(args_.row_offsets, {0, 3, 4});
  EXPECT_NE(store_error(), "");
  EXPECT_TRUE(state.read() == state.start());
}

TEST_F(DeviceCheck, WithoutTheVariableNobodyLooks) {
  unsetenv("QUIRE_CHECK");
  test::upload(args_.row_offsets, {0, 3, 4});
  EXPECT_EQ(store_error(), "");
}

TEST_F(DeviceCheck, ARecordedCallIsNotChecked) {
  test::upload(args_.row_offsets, {0, 3, 4});
  const Stream stream;
  Context context;
  context.stream = stream.get();
  const Graph graph(stream, [&] { store(args_, context); });
  graph.replay(stream);
  stream.wait();
}

TEST_F(DeviceCheck, SlotsPastThePool) {
  const HostTensor slots = HostTensor::of(DType::i32, {5}, {0, -1, 900, 3, 4});
  args_.cache = {.blocks = args_.cache.blocks};
  args_.row_offsets = {};
  args_.slots = twin_.move(slots.view());
  const test::DeviceState state({args_.cache.blocks});
  EXPECT_NE(store_error().find("tokens), or negative to skip a token, got 900 at [2]"),
            std::string::npos);
  EXPECT_TRUE(state.read() == state.start());
  unsetenv("QUIRE_CHECK");
  EXPECT_EQ(store_error(), "");
  EXPECT_FALSE(state.read() == state.start());
}

TEST_F(DeviceCheck, PositionsPastTheAngles) {
  const HostTensor q = HostTensor::random(DType::f32, {5, 1, 8}, 2);
  const HostTensor freqs = HostTensor::random(DType::f32, {16, 8}, 3);
  const HostTensor ids = HostTensor::of(DType::u32, {1, 5}, {0, 1, 16, 3, 4});
  RopeArgs args{.q = twin_.move(q.view()),
                .row_offsets = args_.row_offsets,
                .cache = args_.cache,
                .freqs_cis = twin_.move(freqs.view()),
                .position_ids = twin_.move(ids.view()),
                .out = {}};
  args.out = args.q;
  EXPECT_EQ(error_of([&] { rope(args); }),
            "rope: 'position_ids' must be below the 16 rows of freqs_cis, got 16 at [0, 2]");
}

TEST_F(DeviceCheck, PagesThatAreTargetsTwice) {
  const HostTensor pairs = HostTensor::of(DType::u32, {2, 2}, {0, 2, 1, 2});
  const CopyPagesArgs args{.cache = args_.cache, .pairs = twin_.move(pairs.view())};
  EXPECT_EQ(error_of([&] { copy_pages(args); }),
            "copy_pages: 'pairs' must be no page a target twice, got 2 at [0, 1] and [1, 1]");
}

}  // namespace
}  // namespace quire::cuda
