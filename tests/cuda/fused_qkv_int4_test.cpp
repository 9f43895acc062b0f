// SPDX-License-Identifier: Apache-2.0
// The packed int4 kernels on a GPU, for what the cases of `quire check` do not say: a hundred runs give
// the same bits, and those of a weight that any/ reads packed are those of the plain one. Skipped
// where there is no GPU.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "cuda/any/fused_qkv_matmul/launch.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/kernels.h"
#include "cuda/sm90/fused_qkv_matmul/int4/launch.h"
#include "fused_qkv_subject.h"
#include "packed_twin.h"

namespace quire::cuda::any::fused_qkv_matmul {
namespace {

using Problem = test::FusedQkvSpec;
using Subject = test::FusedQkvSubject;
using test::PackedTwin;

std::vector<std::byte> bytes_of(const TensorView& view) {
  const auto* from = view.as<const std::byte>();
  return {from, from + bytes_for(view.dtype, view.numel())};
}

class FusedQkvInt4 : public testing::TestWithParam<Problem> {
 protected:
  void SetUp() override {
    const std::string reason = refuse_unless_sm90({.kind = DeviceKind::cuda, .index = 0});
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};

TEST_P(FusedQkvInt4, AHundredRunsGiveTheSameBits) {
  const Subject subject(GetParam());
  const PackedTwin there(subject.args);
  const FusedQkvProblem problem = validate(there.packed);
  ASSERT_EQ(sm90::fused_qkv_matmul::refuse_int4(problem), "");
  const KernelPtr<Projection> kernel = sm90::fused_qkv_matmul::prepare_int4(problem);
  std::vector<std::byte> first;
  for (int run = 0; run < 100; ++run) {
    kernel->run(Projection(there.packed), Context{});
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    there.twin.bring_back();
    const std::vector<std::byte> now = bytes_of(subject.args.out);
    if (run == 0) first = now;
    ASSERT_EQ(std::memcmp(now.data(), first.data(), now.size()), 0) << "run " << run;
  }
}

TEST_P(FusedQkvInt4, TheGeneralKernelsReadThePackedWeight) {
  const Subject subject(GetParam());
  const PackedTwin there(subject.args);
  const FusedQkvProblem problem = validate(there.packed);
  ASSERT_EQ(refuse_general(problem), "");
  const KernelPtr<Projection> kernel = prepare_general(problem);
  std::vector<std::vector<std::byte>> results;
  for (const FusedQkvArgs* args : {&there.plain, &there.packed}) {
    kernel->run(Projection(*args), Context{});
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    there.twin.bring_back();
    results.push_back(bytes_of(subject.args.out));
  }
  EXPECT_EQ(results[0], results[1]);
}

std::vector<Problem> problems() {
  std::vector<Problem> all;
  for (const WeightFormat format :
       {WeightFormat::int4, WeightFormat::gptq, WeightFormat::gptq_v2, WeightFormat::awq}) {
    for (const std::int64_t group_size : {32, 64, 128}) {
      for (const bool has_zeros : {false, true}) {
        // Of few tokens any/ sums the plain codes of gptq and awq in another order.
        const std::uint32_t few = format == WeightFormat::int4 ? 9 : 60;
        all.push_back({.name = std::string(name(format)) + "_g" + std::to_string(group_size) +
                               (has_zeros ? "_zeros" : ""),
                       .new_tokens = {3, 0, has_zeros ? 80u : few},
                       .hidden = 384,
                       .format = format,
                       .has_zeros = has_zeros,
                       .group_size = group_size});
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, FusedQkvInt4, testing::ValuesIn(problems()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace quire::cuda::any::fused_qkv_matmul
