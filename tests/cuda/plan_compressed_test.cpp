// SPDX-License-Identifier: Apache-2.0
// Which kernels take what DeepSeek-V4 asks for: powers of two as scales, keys and rows of several tokens, rotations taken
// back, compressed rows. Planners asked about GPUs that are not there, so it needs none.
#include <gtest/gtest.h>

#include <string>

#include "cuda/any/companions.h"
#include "cuda/common/runtime/device_facts.h"
#include "quire/quire.h"

namespace quire::cuda {
namespace {

constexpr ComputeCapability kHopper{9, 0};
constexpr ComputeCapability kAmpere{8, 0};

// The plan on a GPU of this kind. Another index each time: ops remember plans by problem, and the index is part of it.
template <typename Problem> Plan plan_on(const ComputeCapability& capability, Problem problem) {
  static int next = 5000;
  const int index = next++;
  const PretendedDevice pretended(index, {.name = "a GPU",
                                          .compute_major = capability.major,
                                          .compute_minor = capability.minor,
                                          .num_sms = 132,
                                          .shared_bytes_per_block = 227 << 10,
                                          .driver_cuda = 99000});
  problem.device = {.kind = DeviceKind::cuda, .index = index};
  return quire::plan(problem);
}

template <typename Problem>
void expect_general(const std::string& op, const Problem& problem, const std::string& reason) {
  for (const ComputeCapability& capability : {kHopper, kAmpere}) {
    const Plan plan = plan_on(capability, problem);
    EXPECT_EQ(plan.kernel, "cuda/any/" + op) << plan.describe();
    if (capability != kHopper || !runs_sm90(kHopper)) continue;
    for (const Refusal& refusal : plan.refusals) {
      EXPECT_EQ(refusal.reason, reason) << refusal.kernel;
    }
  }
}

CacheShape cache_of(const RowFormat& format, bool is_mla) {
  return {.row_format = format,
          .num_pages = 1024,
          .num_layers = 1,
          .page_size = 64,
          .num_kv_heads = is_mla ? 1 : 8,
          .max_pages = 64,
          .is_mla = is_mla};
}

RowFormat scaled_by_powers(std::int32_t width) {
  return RowFormat::scaled(DType::fp8_e4m3, width, width, DType::e8m0);
}

TEST(PlanCompressed, GeneralKernelsReadPowersOfTwo) {
  FlashAttentionProblem attention;
  attention.ragged = {.tokens = 16, .batch = 16, .max_new_tokens = 1};
  attention.cache = cache_of(scaled_by_powers(128), false);
  attention.heads = 32;
  attention.head_dim = 128;
  attention.value_dim = 128;
  attention.mask = Mask::causal().summary();
  attention.alignment = 128;
  for (const ComputeCapability& capability : {kHopper, kAmpere}) {
    EXPECT_EQ(plan_on(capability, attention).kernel, "cuda/any/flash_attention");
  }

  SparseMlaProblem sparse{.ragged = {.tokens = 128, .batch = 128},
                          .cache = cache_of(scaled_by_powers(576), true),
                          .heads = 64,
                          .latent_dim = 512,
                          .rope_dim = 64,
                          .top_k = 2048,
                          .alignment = 16};
  for (const ComputeCapability& capability : {kHopper, kAmpere}) {
    EXPECT_EQ(plan_on(capability, sparse).kernel, "cuda/any/sparse_mla");
  }
}

// A window of whole rows, then compressed ones.
TEST(PlanCompressed, HopperHasAKernelForRowsThatAreKeyAndValue) {
  const CacheShape cache = cache_of(RowFormat::mla_fp8_e8m0(), true);
  const SparseMlaProblem problem{.ragged = {.tokens = 128, .batch = 128},
                                 .cache = cache,
                                 .heads = 64,
                                 .latent_dim = 512,
                                 .rope_dim = 0,
                                 .top_k = 128,
                                 .extra_k = 512,
                                 .extra_format = cache.row_format,
                                 .extra_tokens_per_row = 4,
                                 .has_sinks = true,
                                 .alignment = 16};
  const bool has_code = runs_sm90(kHopper);
  EXPECT_EQ(plan_on(kHopper, problem).kernel,
            has_code ? "cuda/sm90/sparse_mla" : "cuda/any/sparse_mla");
  EXPECT_EQ(plan_on(kAmpere, problem).kernel, "cuda/any/sparse_mla");
}

TEST(PlanCompressed, WritersOfPowersOfTwo) {
  const CacheShape cache = cache_of(RowFormat::mla_fp8_e8m0(), true);
  StoreProblem store{.ragged = {.tokens = 128, .batch = 128}, .cache = cache};
  expect_general("store", store, "");
  store.scales_only = true;
  expect_general("store_scales", store, "");
  expect_general("quantize_fp8",
                 QuantizeFp8Problem{.rows = 5,
                                    .columns = 512,
                                    .group_size = 64,
                                    .scale_dtype = DType::e8m0,
                                    .scale_rounding = ScaleRounding::power_of_two},
                 "");
  RopeProblem rope;
  rope.inverse = true;
  expect_general("rope", rope, "");
}

TEST(PlanCompressed, KeysOfSeveralTokensAreScoredByTheTileKernel) {
  MlaIndexerProblem problem{.ragged = {.tokens = 64, .batch = 64},
                            .cache = cache_of(RowFormat::scaled(DType::fp8_e4m3, 128, 128), true),
                            .heads = 64,
                            .head_dim = 128,
                            .top_k = 512,
                            .mask = Mask::causal().summary(),
                            .alignment = 128,
                            .has_dense_scales = true};
  const std::string fast = runs_sm90(kHopper) ? "cuda/sm90/mla_indexer" : "cuda/any/mla_indexer";
  for (const std::int64_t tokens_per_key : {1, 4, 128, 4096}) {
    problem.tokens_per_key = tokens_per_key;
    EXPECT_EQ(plan_on(kHopper, problem).kernel, fast);
    EXPECT_EQ(plan_on(kAmpere, problem).kernel, "cuda/any/mla_indexer");
  }
  problem.tokens_per_key = 4097;
  expect_general("mla_indexer", problem, "a key stands for more than 4096 tokens");
}

CompressKeysProblem compressed(std::int64_t width) {
  return {
      .ragged = {.tokens = 64, .batch = 64},
      .cache = cache_of(RowFormat::uniform(DType::bf16, static_cast<std::int32_t>(width)), true),
      .width = width,
      .series = 2,
      .ratio = 4,
      .rope_dim = 64,
      .state_rows = 8};
}

TEST(PlanCompressed, RowsAreCompressedOnEveryGpu) {
  expect_general("compress_keys", compressed(512), "");
  expect_general("compress_keys", compressed(any::compress_keys::kMostColumns), "");
}

TEST(PlanCompressed, RowsThatDoNotFitIntoSharedMemoryAreRefused) {
  const Plan plan = plan_on(kHopper, compressed(any::compress_keys::kMostColumns + 1));
  EXPECT_FALSE(plan.supported());
  ASSERT_FALSE(plan.refusals.empty());
  EXPECT_EQ(plan.refusals.front().kernel, "cuda/any/compress_keys");
  EXPECT_EQ(plan.refusals.front().reason, "width is 8193, more than 8192");
}

}  // namespace
}  // namespace quire::cuda
