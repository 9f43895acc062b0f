// SPDX-License-Identifier: Apache-2.0
// linear by the kernels of fused_qkv_matmul. Plans need no GPU; the runs are skipped where there is none. What is computed
// is the cases' matter (`quire check linear --device cuda`): here that a call without a cache reads and writes no row.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/status.h"
#include "quire/ops/linear.h"
#include "quire/pack_weight.h"
#include "support/host_tensor.h"
#include "tools/device/cuda/device_buffer.h"

namespace quire::cuda {
namespace {

using test::HostTensor;

// An index that no other test pretends to have.
constexpr int kIndex = 4000;

class LinearPlan : public testing::Test {
 protected:
  void SetUp() override {
    if (!runs_sm90({9, 0})) GTEST_SKIP() << "a build without machine code for sm_90";
  }

  static LinearProblem problem(std::int64_t tokens, std::int64_t columns) {
    return {.device = {.kind = DeviceKind::cuda, .index = kIndex},
            .tokens = tokens,
            .hidden = 576,
            .columns = columns,
            .alignment = 16};
  }

  PretendedDevice device_{kIndex,
                          {.name = "H200",
                           .compute_major = 9,
                           .compute_minor = 0,
                           .num_sms = 132,
                           .shared_bytes_per_block = 227 << 10,
                           .driver_cuda = 99000}};
};

std::string reason_of(const Plan& plan, const std::string& kernel) {
  for (const Refusal& refusal : plan.refusals) {
    if (refusal.kernel == kernel) return refusal.reason;
  }
  return "(not refused)";
}

TEST_F(LinearPlan, ModelsGetTilesAndNeedNoWorkspace) {
  for (const std::int64_t columns : {576, 1536, 3072, 49152}) {
    for (const std::int64_t tokens : {1, 64, 4096}) {
      const Plan tiles = plan(problem(tokens, columns));
      EXPECT_EQ(tiles.kernel, "cuda/sm90/linear") << columns;
      EXPECT_EQ(tiles.workspace_bytes, 0);
      EXPECT_FALSE(tiles.choices.empty());
    }
  }
}

TEST_F(LinearPlan, OddColumnsGetTheGeneralKernels) {
  const Plan odd = plan(problem(64, 577));
  EXPECT_EQ(odd.kernel, "cuda/any/linear");
  EXPECT_EQ(reason_of(odd, "cuda/sm90/linear"), "rows of weight are not a multiple of 32");
  EXPECT_EQ(odd.workspace_bytes, 0);
}

TEST_F(LinearPlan, PackedInt4GetsItsKernels) {
  LinearProblem int4 = problem(1, 1536);
  int4.weight_format = WeightFormat::int4;
  int4.weight_packing = WeightPacking::fragments_64;
  int4.group_size = 64;
  EXPECT_EQ(plan(int4).kernel, "cuda/sm90/int4/linear");
  EXPECT_EQ(plan(int4).workspace_bytes, 0);
  int4.columns = 49152;
  EXPECT_EQ(plan(int4).kernel, "cuda/sm90/int4/linear");
}

TEST_F(LinearPlan, RoundedInputIsAllTheWorkspaceThereIs) {
  LinearProblem rounded = problem(3, 576);
  rounded.weight_format = WeightFormat::q8_0;
  rounded.weight_dtype = DType::u8;
  rounded.activations = Activations::int8;
  EXPECT_EQ(plan(rounded).kernel, "cuda/any/linear");
  EXPECT_EQ(plan(rounded).workspace_bytes, 3 * 576 * 4);
}

TEST_F(LinearPlan, NothingToDoIsPlannedToo) {
  for (const auto& [tokens, columns] : {std::pair{0, 576}, std::pair{8, 0}}) {
    const Plan none = plan(problem(tokens, columns));
    EXPECT_TRUE(none.supported());
    EXPECT_EQ(none.workspace_bytes, 0);
  }
}

struct Kernel {
  const char* name;
  bool is_packed;
};

class LinearRun : public testing::TestWithParam<Kernel> {
 protected:
  void SetUp() override {
    const std::string reason = refuse_unless_sm90({.kind = DeviceKind::cuda, .index = 0});
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};

constexpr std::int64_t kTokens = 5;
constexpr std::int64_t kColumns = 96;
constexpr std::int64_t kHidden = 128;

// A buffer on the GPU and the view of what it holds.
struct Sent {
  DeviceBuffer buffer;
  TensorView view;

  explicit Sent(const TensorView& host) : buffer(bytes_for(host.dtype, host.numel())), view(host) {
    check(cudaMemcpy(buffer.data(), host.data, static_cast<std::size_t>(buffer.bytes()),
                     cudaMemcpyHostToDevice),
          "cudaMemcpy");
    view.data = buffer.data();
    view.device = {.kind = DeviceKind::cuda, .index = 0};
  }
};

// The kernels of sm90/ look up rows of a sequence whose length is the weight's first word.
TEST_P(LinearRun, TheFirstWordOfTheWeightIsNoLength) {
  std::vector<std::vector<float>> results;
  for (const std::uint32_t word : {0u, 0x7f7f7f7fu, 0xffffffffu}) {
    HostTensor weight =
        HostTensor::random(GetParam().is_packed ? DType::u4 : DType::bf16, {kColumns, kHidden}, 1,
                           GetParam().is_packed ? 15.0 : 1.0);
    std::memcpy(weight.bytes().data(), &word, sizeof word);
    const HostTensor scale = HostTensor::filled(DType::f16, {kColumns, 1}, 0.125);
    const Sent x(HostTensor::random(DType::bf16, {kTokens, kHidden}, 2).view());
    const Sent data(weight.view());
    const Sent scales(scale.view());
    const HostTensor host_out(DType::f32, {kTokens, kColumns});
    const Sent out(host_out.view());
    LinearArgs args{.x = x.view, .weight = {.data = data.view}, .out = out.view};
    if (GetParam().is_packed) {
      args.weight.format = WeightFormat::int4;
      args.weight.scale = scales.view;
      args.weight.group_size = kHidden;
    }
    const DeviceBuffer storage(GetParam().is_packed ? packed_bytes(args.weight) : 1);
    if (GetParam().is_packed) {
      args.weight = pack_weight(
          args.weight,
          TensorView::contiguous(storage.data(), DType::u8, {storage.bytes()}, out.view.device));
    }
    Context context;
    context.kernel = GetParam().name;
    linear(args, context);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    std::vector<float> values(kTokens * kColumns);
    check(cudaMemcpy(values.data(), out.view.data, values.size() * sizeof(float),
                     cudaMemcpyDeviceToHost),
          "cudaMemcpy");
    results.push_back(std::move(values));
  }
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    if (i % kColumns == 0) continue;  // the row that was changed
    EXPECT_EQ(results[0][i], results[1][i]) << i;
    EXPECT_EQ(results[0][i], results[2][i]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, LinearRun,
                         testing::Values(Kernel{"cuda/sm90/linear", false},
                                         Kernel{"cuda/any/linear", false},
                                         Kernel{"cuda/sm90/int4/linear", true},
                                         Kernel{"cuda/any/linear", true}));

}  // namespace
}  // namespace quire::cuda
