// SPDX-License-Identifier: Apache-2.0
// Context::overlaps_previous: a projection that starts while the kernel before it still runs gives the bits of one that
// starts after it, whatever that kernel writes but the weight. Skipped where there is no GPU.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "cuda/common/runtime/device_facts.h"
#include "device_state.h"
#include "late_projection.h"
#include "tools/device/cuda/stream.h"

namespace quire::cuda {
namespace {

using namespace std::chrono_literals;
using test::DeviceState;
using test::LateProjection;
using test::LateTensor;

// Longer than a projection takes to start and read everything it needs.
constexpr std::chrono::nanoseconds kLate = 300us;
constexpr auto kGeneral = "cuda/any/fused_qkv_matmul";

struct Case {
  test::FusedQkvSpec spec;
  std::string kernel = "cuda/sm90/fused_qkv_matmul";
  bool is_packed = false;
  bool fetches_early = true;  // weights, while the kernel before it runs
};

std::ostream& operator<<(std::ostream& out, const Case& test) {
  return out << test.spec;
}

struct Subject {
  LateProjection projection;
  DeviceState state;
  Stream stream;
  DeviceState::Bytes expected;  // with all that is late in its place

  explicit Subject(const Case& test)
      : projection(test.spec, test.is_packed), state(projection.written()) {
    projection.run(stream.get(), false);
    expected = state.read();
  }
  // As it is before the kernel that comes before the projection.
  void start_over() const {
    state.restore();
    projection.hold_before();
  }
  void run_late(std::chrono::nanoseconds wait = kLate) const {
    test::launch_late_copies(projection.copies(), wait, stream.get());
    projection.run(stream.get(), true);
  }
  bool is_as_expected() const { return state.read() == expected; }
};

class OverlapsPrevious : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::string reason = refuse_unless_sm90({.kind = DeviceKind::cuda, .index = 0});
    if (!reason.empty()) GTEST_SKIP() << reason;
    made_.emplace(GetParam());
    ASSERT_EQ(made_->projection.plan().kernel, GetParam().kernel);
    ASSERT_FALSE(made_->expected == made_->state.start());
  }
  const Subject& subject() const { return *made_; }

 private:
  std::optional<Subject> made_;
};

TEST_P(OverlapsPrevious, WaitsForWhatTheKernelBeforeItWrites) {
  for (const std::chrono::nanoseconds wait : {0us, 2us, 5us, 10us, 20us, 300us}) {
    for (int run = 0; run < 3; ++run) {
      subject().start_over();
      subject().run_late(wait);
      ASSERT_TRUE(subject().is_as_expected()) << wait.count() << " ns, run " << run;
    }
  }
}

// Or the test above would not notice who reads it too early.
TEST_P(OverlapsPrevious, ReadsEveryTensorThatIsWrittenLate) {
  for (const LateTensor& late : subject().projection.late()) {
    subject().state.restore();
    subject().projection.hold_right();
    late.hold(late.before);
    subject().projection.run(nullptr, false);
    EXPECT_FALSE(subject().is_as_expected()) << late.name;
  }
}

TEST_P(OverlapsPrevious, WaitsInAGraphToo) {
  const Graph graph(subject().stream, [&] { subject().run_late(); });
  for (int run = 0; run < 3; ++run) {
    subject().start_over();
    graph.replay(subject().stream);
    ASSERT_TRUE(subject().is_as_expected()) << "replay " << run;
  }
}

TEST_P(OverlapsPrevious, WaitsForCopiesAndFills) {
  const auto copy_and_fill = [&] {
    for (const test::ByteCopy& copy : subject().projection.copies()) {
      check(cudaMemcpyAsync(copy.to, copy.from, static_cast<std::size_t>(copy.bytes),
                            cudaMemcpyDeviceToDevice, subject().stream.get()),
            "cudaMemcpyAsync");
    }
    const TensorView& out = subject().projection.args().out;
    check(
        cudaMemset2DAsync(out.data, static_cast<std::size_t>(bytes_for(out.dtype, out.strides[0])),
                          0, static_cast<std::size_t>(bytes_for(out.dtype, out.shape[1])),
                          static_cast<std::size_t>(out.shape[0]), subject().stream.get()),
        "cudaMemset2DAsync");
    subject().projection.run(subject().stream.get(), true);
  };
  subject().start_over();
  copy_and_fill();
  EXPECT_TRUE(subject().is_as_expected());
  const Graph graph(subject().stream, copy_and_fill);
  subject().start_over();
  graph.replay(subject().stream);
  EXPECT_TRUE(subject().is_as_expected());
}

TEST_P(OverlapsPrevious, WhatFollowsSeesTheResults) {
  subject().start_over();
  std::vector<LateTensor> taken;
  std::vector<test::ByteCopy> takes;
  for (const TensorView& tensor : subject().projection.written()) {
    taken.emplace_back("", tensor, download(tensor, nullptr));
    takes.push_back({.to = taken.back().right.data(),
                     .from = tensor.as<std::byte>(),
                     .bytes = taken.back().right.bytes()});
  }
  subject().run_late();
  test::launch_late_copies(takes, 0ns, subject().stream.get());
  ASSERT_TRUE(subject().is_as_expected());
  for (const LateTensor& tensor : taken) tensor.hold(tensor.right);
  EXPECT_TRUE(subject().is_as_expected());
}

// The promise broken: a weight that comes late is read before it is there. Without this the other tests would prove
// nothing, as nothing would run at the same time.
TEST_P(OverlapsPrevious, FetchesTheWeightMeanwhile) {
  const TensorView& tensor = subject().projection.args().weight.data;
  const std::vector<std::byte> zeros(download(tensor, nullptr).size());
  const LateTensor weight("weight", tensor, zeros);
  std::vector<test::ByteCopy> copies = subject().projection.copies();
  copies.push_back(weight.copy());
  subject().start_over();
  weight.hold(weight.before);
  test::launch_late_copies(copies, kLate, subject().stream.get());
  subject().projection.run(subject().stream.get(), true);
  EXPECT_EQ(subject().is_as_expected(), !GetParam().fetches_early);
}

struct Size {
  std::vector<std::uint32_t> new_tokens;
  std::int64_t hidden = 1024;
  std::int64_t q_dim = 256;
};

Case tiles(std::string name, const Size& size) {
  return {.spec = {.name = std::move(name),
                   .new_tokens = size.new_tokens,
                   .hidden = size.hidden,
                   .q_dim = size.q_dim,
                   .row = RowFormat::uniform(DType::bf16, 128)}};
}

enum class Scales : std::uint8_t { rows, blocks };

Case fp8(std::string name, const Size& size, Scales scales) {
  Case test = tiles(std::move(name), size);
  test.spec.x = test.spec.weight = DType::fp8_e4m3;
  test.spec.format = WeightFormat::fp8;
  test.spec.scale_rows = scales == Scales::rows ? 0 : -1;
  test.spec.input_columns = scales == Scales::rows ? 1 : size.hidden / 128;
  return test;
}

Case codes(std::string name, const Size& size, const RowFormat& row) {
  Case test = tiles(std::move(name), size);
  test.spec.row = row;
  return test;
}

Case codes_of_static_scales(const Size& size, const RowFormat& row) {
  Case test = codes("codes_of_static_scales", size, row);
  test.spec.static_scale = 0.02;
  return test;
}

// In panels, which only start early, or in quarters of them.
Case int4(std::string name, const Size& size) {
  Case test = tiles(std::move(name), size);
  test.fetches_early = size.q_dim > 132 * 64;
  test.kernel = "cuda/sm90/int4/fused_qkv_matmul";
  test.spec.format = WeightFormat::int4;
  test.spec.group_size = 128;
  test.is_packed = true;
  return test;
}

Case general(const Size& size) {
  Case test = tiles("general", size);
  test.kernel = kGeneral;
  test.fetches_early = false;
  test.spec.is_ragged = true;
  return test;
}

// Few tokens, some that blocks side by side share, and many, whose blocks share the weight.
std::vector<Case> cases() {
  const Size few{.new_tokens = {3, 0, 6}};
  const Size shallow{.new_tokens = {3, 0, 6}, .hidden = 64};  // less K than is sent for early
  const Size some{.new_tokens = {20, 0, 80}};
  const Size many{.new_tokens = {100, 0, 200}, .hidden = 768, .q_dim = 4096};
  const RowFormat granules = RowFormat::scaled(DType::fp8_e4m3, 128, 128);
  const RowFormat waiting = RowFormat::scaled(DType::i8, 128, 128, DType::f16);
  return {tiles("bf16_few", few),
          tiles("bf16_some", some),
          tiles("bf16_many", many),
          tiles("bf16_shallow", shallow),
          fp8("fp8_rows_few", few, Scales::rows),
          fp8("fp8_rows_many", many, Scales::rows),
          fp8("fp8_blocks_few", few, Scales::blocks),
          fp8("fp8_blocks_many", many, Scales::blocks),
          codes("codes_few", few, granules),
          codes("codes_many", many, granules),
          codes_of_static_scales(some, granules),
          codes("rows_that_wait", few, waiting),
          int4("int4_few", few),
          int4("int4_some", some),
          int4("int4_quarters", {.new_tokens = {3, 0, 6}, .q_dim = 8704}),
          general(some)};
}

INSTANTIATE_TEST_SUITE_P(All, OverlapsPrevious, testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.spec.name; });

}  // namespace
}  // namespace quire::cuda
