// SPDX-License-Identifier: Apache-2.0
// The indexer at full size on the GPU: 4 096 tokens over 4 096 keys, 64 heads of 128 columns. A hundred
// runs leave the same bytes, and what they leave is a legitimate selection. QUIRE_KERNEL names the
// candidates, "cuda" unless told. Skipped where there is no GPU.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "cuda/common/runtime/device_facts.h"
#include "device_twin.h"
#include "reference/mla_indexer.h"
#include "support/attention_inputs.h"
#include "support/indexer_inputs.h"

namespace quire::test {
namespace {

constexpr std::uint32_t kTokens = 4096;
constexpr std::int64_t kTopK = 2048;
constexpr int kRuns = 100;

std::vector<std::int32_t> copy_back(const TensorView& out) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(out.numel()));
  cuda::check(cudaMemcpy(values.data(), out.data, values.size() * sizeof(std::int32_t),
                         cudaMemcpyDeviceToHost),
              "cudaMemcpy");
  return values;
}

TEST(IndexerRepeats, LeaveTheSameBytes) {
  const std::string reason = cuda::refuse_unless_sm80({.kind = DeviceKind::cuda, .index = 0});
  if (!reason.empty()) GTEST_SKIP() << reason;
  CacheOptions options = index_options({0}, {kTokens}, 128);
  options.page_size = 64;
  IndexerInputs inputs(options, 64, kTopK);
  inputs.cache.fill_new(kTestLayer, 34, 3.0);
  const MlaIndexerArgs args = inputs.args();
  DeviceTwin twin;
  const MlaIndexerArgs there = twin.move(args);
  Context context;
  const char* kernel = std::getenv("QUIRE_KERNEL");
  context.kernel = kernel == nullptr ? "cuda" : kernel;
  const Plan plan = supports(there, context);
  ASSERT_TRUE(plan.supported());
  const cuda::DeviceBuffer workspace(plan.workspace_bytes);
  context.workspace = workspace.data();
  context.workspace_bytes = workspace.bytes();
  mla_indexer(there, context);
  const std::vector<std::int32_t> first = copy_back(there.out);
  for (int run = 1; run < kRuns; ++run) {
    mla_indexer(there, context);
    ASSERT_EQ(copy_back(there.out), first) << "run " << run;
  }
  for (const std::int64_t token : {0, 2047, 2048, 2049, 2303, 3071, 4094, 4095}) {
    const std::span row(first.data() + token * kTopK, kTopK);
    EXPECT_EQ(reference::selection_fault(args, token, row), "") << "token " << token;
  }
}

}  // namespace
}  // namespace quire::test
