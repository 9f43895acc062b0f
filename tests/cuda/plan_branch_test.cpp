// SPDX-License-Identifier: Apache-2.0
// Which problems the fast branch of mla_prefill takes, and what it keeps: pure, so it needs no GPU.
#include "cuda/sm90/mla_prefill/branch.h"

#include "gtest/gtest.h"

namespace quire::cuda::sm90::mla_prefill {
namespace {

MlaPrefillProblem deepseek(std::int64_t tokens) {
  MlaPrefillProblem problem;
  problem.ragged = {.tokens = tokens, .batch = 1};
  problem.cache = {.row_format = RowFormat::uniform(DType::bf16, 576),
                   .num_pages = 1024,
                   .num_layers = 1,
                   .page_size = 64,
                   .num_kv_heads = 1,
                   .max_pages = tokens / 64,
                   .is_mla = true};
  problem.heads = 128;
  problem.latent_dim = 512;
  problem.nope_dim = 128;
  problem.rope_dim = 64;
  problem.value_dim = 128;
  problem.alignment = 16;
  problem.buffer_tokens = 16384;
  problem.max_chunks = 1;
  problem.mask = Mask::causal().summary();
  return problem;
}

TEST(PlanBranchTest, TakesDeepseeksHeadsAndSaysWhyNotOthers) {
  EXPECT_EQ(refuse_shape(deepseek(4096)), "");
  const auto refusal_of = [](auto change) {
    MlaPrefillProblem problem = deepseek(4096);
    change(problem);
    return refuse_shape(problem);
  };
  EXPECT_NE(refusal_of([](auto& p) { p.nope_dim = 64; }), "");
  EXPECT_NE(refusal_of([](auto& p) { p.value_dim = 192; }), "");
  EXPECT_NE(refusal_of([](auto& p) { p.q_dtype = p.out_dtype = DType::f32; }), "");
  EXPECT_NE(refusal_of([](auto& p) { p.out_dtype = DType::f32; }), "");
  EXPECT_NE(refusal_of([](auto& p) { p.weight_dtype = DType::fp8_e5m2; }), "");
  EXPECT_NE(refusal_of([](auto& p) { p.cache.page_size = 4; }), "");
  EXPECT_NE(refusal_of([](auto& p) { p.buffer_tokens = 20; }), "");
  EXPECT_NE(refusal_of([](auto& p) { p.alignment = 8; }), "");
  EXPECT_NE(refusal_of([](auto& p) { p.mask = (Mask() | Mask::tree({})).summary(); }), "");
  EXPECT_EQ(refusal_of([](auto& p) { p.weight_dtype = DType::fp8_e4m3; }), "");
  EXPECT_EQ(refusal_of([](auto& p) { p.mask = (Mask() & Mask::key_intervals({}, {})).summary(); }),
            "");
}

// A chunk that full page tables cannot reach costs nothing: neither kernels nor sums between chunks.
TEST(PlanBranchTest, ChunksBehindTheTablesAreNone) {
  MlaPrefillProblem problem = deepseek(8192);
  problem.max_chunks = 4;
  EXPECT_EQ(branch_shape(problem).max_chunks, 1);
  EXPECT_EQ(branch_shape(problem).groups(), 1);
  problem.buffer_tokens = 4096;
  EXPECT_EQ(branch_shape(problem).max_chunks, 2);
  problem.buffer_tokens = 4104;
  EXPECT_EQ(branch_shape(problem).max_chunks, 2);
  problem.max_chunks = 1;
  EXPECT_EQ(branch_shape(problem).max_chunks, 1);
  problem.cache.max_pages = 0;
  EXPECT_EQ(branch_shape(problem).max_chunks, 1);
}

// Rope columns go into products as they stand: rounding them to q's dtype would be one rounding more
// than the op has.
TEST(PlanBranchTest, RopeColumnsMustBeExactInQsDtype) {
  MlaPrefillProblem problem = deepseek(4096);
  problem.cache.row_format = RowFormat::uniform(DType::f32, 576);
  EXPECT_NE(refuse_shape(problem), "");
  problem.cache.row_format = RowFormat::uniform(DType::f16, 576);
  EXPECT_NE(refuse_shape(problem), "");
  problem.cache.row_format = RowFormat::uniform(DType::fp8_e4m3, 576);
  EXPECT_EQ(refuse_shape(problem), "");
}

TEST(PlanBranchTest, ProductsOfE4m3WhereTheyAreAllowed) {
  MlaPrefillProblem problem = deepseek(4096);
  EXPECT_FALSE(branch_shape(problem).has_fp8_products);
  problem.allow_fp8_products = true;
  EXPECT_TRUE(branch_shape(problem).has_fp8_products);
  problem.q_dtype = problem.out_dtype = DType::f16;
  EXPECT_FALSE(branch_shape(problem).has_fp8_products);
}

// The projection that keeps its weights writes e4m3 itself, in place of what it writes else.
TEST(PlanBranchTest, OnlyKeysOfOtherProjectionsAreRoundedApart) {
  MlaPrefillProblem problem = deepseek(4096);
  problem.allow_fp8_products = true;
  EXPECT_TRUE(branch_shape(problem).rounds_projected());
  problem.weight_dtype = DType::fp8_e4m3;
  EXPECT_FALSE(branch_shape(problem).rounds_projected());
  EXPECT_EQ(branch_shape(problem).groups(), 1);
}

TEST(PlanBranchTest, ScratchIsBoundedByAGroupOfHeads) {
  constexpr std::int64_t kMegabyte = 1 << 20;
  for (const std::int64_t tokens : {1024, 4096, 8192, 16384}) {
    for (const std::int64_t max_chunks : {1, 2, 16}) {
      MlaPrefillProblem problem = deepseek(tokens);
      problem.max_chunks = max_chunks;
      problem.allow_fp8_products = max_chunks == 2;
      const BranchShape shape = branch_shape(problem);
      EXPECT_GE(shape.group() * shape.groups(), shape.heads);
      EXPECT_LT(shape.group() * (shape.groups() - 1), shape.heads);
      EXPECT_LE(branch_workspace_bytes(shape), (576 + 80) * kMegabyte)
          << tokens << " " << max_chunks;
    }
  }
  EXPECT_EQ(branch_shape(deepseek(4096)).groups(), 1);
}

}  // namespace
}  // namespace quire::cuda::sm90::mla_prefill
