// SPDX-License-Identifier: Apache-2.0
// quantize_fp8 and a projection of its codes that overlaps it, again and again. Skipped where there is no GPU.
#include <gtest/gtest.h>

#include "cuda/common/runtime/device_facts.h"
#include "device_state.h"
#include "late_projection.h"
#include "quire/ops/quantize_fp8.h"
#include "tools/device/cuda/stream.h"

namespace quire::cuda {
namespace {

using test::DeviceState;
using test::LateProjection;
using test::LateTensor;

constexpr std::int64_t kHidden = 1024;
constexpr std::uint32_t kTokens = 60;

// group_size: columns of x that share a scale, -1 for all of them.
test::FusedQkvSpec fp8_spec(std::int64_t group_size) {
  return {.name = "fp8",
          .new_tokens = {3, 0, kTokens - 3},
          .hidden = kHidden,
          .q_dim = 256,
          .row = RowFormat::uniform(DType::bf16, 128),
          .x = DType::fp8_e4m3,
          .format = WeightFormat::fp8,
          .weight = DType::fp8_e4m3,
          .scale_rows = group_size < 0 ? 0 : -1,
          .input_columns = group_size < 0 ? 1 : kHidden / group_size};
}

class OverlapsQuantizing : public testing::TestWithParam<std::int64_t> {};

TEST_P(OverlapsQuantizing, GivesTheBitsOfOneAfterTheOther) {
  const std::string reason = refuse_unless_sm90({.kind = DeviceKind::cuda, .index = 0});
  if (!reason.empty()) GTEST_SKIP() << reason;
  const LateProjection projection(fp8_spec(GetParam()));
  const DeviceState state(projection.written());
  const auto x = test::HostTensor::random(DType::bf16, {kTokens, kHidden}, 41);
  test::DeviceTwin twin;
  const QuantizeFp8Args quantized{.x = twin.move(x.view()),
                                  .group_size = GetParam(),
                                  .out = projection.args().x,
                                  .scale = *projection.args().input_scale};
  const Stream stream;
  Context context;
  context.stream = stream.get();
  const auto run = [&](bool overlaps_previous) {
    state.restore();
    for (const LateTensor& late : projection.late()) {
      const bool is_quantized = late.name == "x" || late.name == "input_scale";
      late.hold(is_quantized ? late.before : late.right);
    }
    quantize_fp8(quantized, context);
    projection.run(stream.get(), overlaps_previous);
    return state.read();
  };
  const DeviceState::Bytes expected = run(false);
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(run(true) == expected) << "run " << i;
}

INSTANTIATE_TEST_SUITE_P(All, OverlapsQuantizing, testing::Values(-1, 128), [](const auto& test) {
  return test.param < 0 ? "token_scales" : "group_scales";
});

}  // namespace
}  // namespace quire::cuda
