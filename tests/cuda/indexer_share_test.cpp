// SPDX-License-Identifier: Apache-2.0
// The indexer on a stream that has only some of the SMs, called and recorded: rows that all SMs would take
// together are chosen all the same. Skipped where there is no GPU.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "cuda/common/runtime/device_facts.h"
#include "device_twin.h"
#include "green_stream.h"
#include "reference/mla_indexer.h"
#include "support/attention_inputs.h"
#include "support/indexer_inputs.h"

namespace quire::test {
namespace {

constexpr std::int64_t kTopK = 2048;

PickInputs one_row(std::uint32_t keys, std::int64_t heads) {
  CacheOptions options = index_options({keys - 1}, {1}, 128);
  options.page_size = 64;
  PickInputs inputs(options, kTopK, heads);
  std::mt19937 random(5);
  for (std::int64_t key = 0; key < keys; ++key) {
    inputs.set_score(0, key, 1.0, static_cast<float>(random() * 0x1p-30 - 2.0));
  }
  return inputs;
}

// What a recorded call leaves when it is replayed.
void record_and_replay(const MlaIndexerArgs& args, const Context& context,
                       const GreenStream& stream) {
  cuda::check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "begin");
  mla_indexer(args, context);
  cudaGraph_t recorded = nullptr;
  cuda::check(cudaStreamEndCapture(stream.get(), &recorded), "cudaStreamEndCapture");
  cudaGraphExec_t graph = nullptr;
  cuda::check(cudaGraphInstantiate(&graph, recorded, 0), "cudaGraphInstantiate");
  cuda::check(cudaGraphLaunch(graph, stream.get()), "cudaGraphLaunch");
  stream.wait();
  cuda::check(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
  cuda::check(cudaGraphDestroy(recorded), "cudaGraphDestroy");
}

class IndexerShare : public testing::TestWithParam<std::uint32_t> {
 protected:
  void SetUp() override {
    const std::string reason = cuda::refuse_unless_sm90({.kind = DeviceKind::cuda, .index = 0});
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};

TEST_P(IndexerShare, ChoosesWhatTheOracleDoesOnAFewSms) {
  const PickInputs oracle = one_row(GetParam(), 1);
  reference::mla_indexer(oracle.args());
  const PickInputs subject = one_row(GetParam(), 64);
  DeviceTwin twin;
  const MlaIndexerArgs there = twin.move(subject.args());
  const GreenStream stream(16);
  EXPECT_EQ(cuda::share_of(stream.get(), 0).num_sms, stream.num_sms());
  ASSERT_LT(stream.num_sms(), cuda::num_sms(0));

  Context context{.stream = stream.get(), .kernel = "cuda/sm90/mla_indexer"};
  const cuda::DeviceBuffer workspace(supports(there, context).workspace_bytes);
  context.workspace = workspace.data();
  context.workspace_bytes = workspace.bytes();
  mla_indexer(there, context);
  stream.wait();
  twin.bring_back();
  EXPECT_EQ(subject.row(0), oracle.row(0));

  const auto bytes = static_cast<std::size_t>(bytes_for(there.out.dtype, there.out.numel()));
  cuda::check(cudaMemset(there.out.data, 0, bytes), "cudaMemset");
  record_and_replay(there, context, stream);
  twin.bring_back();
  EXPECT_EQ(subject.row(0), oracle.row(0)) << "recorded";
}

// A cluster's of sixteen thread blocks, and a group's of all SMs, where there are all.
INSTANTIATE_TEST_SUITE_P(Keys, IndexerShare, testing::Values(8000u, 33000u));

TEST(StreamShare, IsAllOfTheDeviceOnAPlainStream) {
  if (cuda::num_devices() == 0) GTEST_SKIP() << "no GPU";
  const cuda::StreamShare share = cuda::share_of(nullptr, 0);
  EXPECT_EQ(share.num_sms, cuda::num_sms(0));
  EXPECT_EQ(share.max_cluster, 16);
}

}  // namespace
}  // namespace quire::test
