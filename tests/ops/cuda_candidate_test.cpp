// SPDX-License-Identifier: Apache-2.0
// Every build lists the same kernels; where one cannot run, the plan says why.
#include <gtest/gtest.h>

#include "quire/quire.h"

namespace quire {
namespace {

const Refusal* find_refusal(const Plan& plan, const std::string& kernel) {
  for (const Refusal& refusal : plan.refusals) {
    if (refusal.kernel == kernel) return &refusal;
  }
  return nullptr;
}

template <typename Problem> void expect_first(const std::string& kernel, Problem problem) {
  const Plan on_host = plan(problem);
  ASSERT_FALSE(on_host.refusals.empty()) << kernel;
  EXPECT_EQ(on_host.refusals.front().kernel, kernel);
  EXPECT_EQ(on_host.refusals.front().reason, "tensors are on cpu") << kernel;

  problem.device = {.kind = DeviceKind::cuda, .index = 0};
  const Plan on_gpu = plan(problem);
  if (on_gpu.supported()) {
    EXPECT_EQ(on_gpu.kernel, kernel);
    return;
  }
  const Refusal* refusal = find_refusal(on_gpu, kernel);
  ASSERT_NE(refusal, nullptr) << kernel;
  const bool says_why = refusal->reason == "this build has no CUDA" ||
                        refusal->reason.find("8.0 or newer") != std::string::npos ||
                        refusal->reason.find("the driver of") != std::string::npos;
  EXPECT_TRUE(says_why) << kernel << ": " << refusal->reason;
}

TEST(CudaCandidate, CompanionsAreListedFirstInEveryBuild) {
  expect_first("cuda/any/compress_keys", CompressKeysProblem{});
  expect_first("cuda/any/rope", RopeProblem{});
  expect_first("cuda/any/rms_norm", RmsNormProblem{});
  expect_first("cuda/any/store", StoreProblem{});
  expect_first("cuda/any/store_scales", StoreProblem{.scales_only = true});
  expect_first("cuda/any/copy_pages", CopyPagesProblem{});
  expect_first("cuda/any/quantize_fp8", QuantizeFp8Problem{});
  expect_first("cuda/any/store_index_keys", StoreIndexKeysProblem{});
  expect_first("cuda/any/quantize_index_queries", QuantizeIndexQueriesProblem{});
  expect_first("cuda/any/row_offsets", RowOffsetsProblem{});
  expect_first("cuda/any/remap_sparse_indices", RemapSparseIndicesProblem{});
  expect_first("cuda/any/merge_states", MergeStatesProblem{});
}

// Whatever else an op lists, one of its kernels takes every valid problem on a GPU.
TEST(CudaCandidate, EveryAttentionOpHasAGeneralKernelInEveryBuild) {
  const auto expect_listed = [](const std::string& kernel, const Plan& on_host) {
    const Refusal* refusal = find_refusal(on_host, kernel);
    ASSERT_NE(refusal, nullptr) << kernel;
    EXPECT_EQ(refusal->reason, "tensors are on cpu") << kernel;
  };
  expect_listed("cuda/any/flash_attention", plan(FlashAttentionProblem{}));
  expect_listed("cuda/any/fused_qkv_matmul", plan(FusedQkvProblem{}));
  expect_listed("cuda/any/linear", plan(LinearProblem{}));
  expect_listed("cuda/any/mla_decode", plan(MlaDecodeProblem{}));
  expect_listed("cuda/any/mla_prefill", plan(MlaPrefillProblem{}));
  expect_listed("cuda/any/mla_indexer", plan(MlaIndexerProblem{}));
  expect_listed("cuda/any/sparse_mla", plan(SparseMlaProblem{}));
}

TEST(CudaCandidate, ADeviceThatIsNotThereIsRefused) {
  RowOffsetsProblem problem;
  problem.device = {.kind = DeviceKind::cuda, .index = 1 << 20};
  EXPECT_FALSE(plan(problem).supported());
}

}  // namespace
}  // namespace quire
