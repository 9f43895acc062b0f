// SPDX-License-Identifier: Apache-2.0
// Which int4 kernel a projection gets: pure, so it needs no GPU.
#include "cuda/sm90/fused_qkv_matmul/int4/plan_int4.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cuda/sm90/fused_qkv_matmul/int4/few_tokens/plan_few.h"

namespace quire::cuda::sm90::fused_qkv_matmul {
namespace {

constexpr int kSms = 132;

TEST(PlanInt4Test, EveryVariantFitsTheMachine) {
  constexpr std::int64_t kSharedBytes = 227 * 1024;  // of a block
  std::set<std::string_view> names;
  for (const Int4Variant& variant : kInt4Variants) {
    EXPECT_TRUE(names.insert(variant.name).second) << variant.name;
    const Int4Config& config = variant.config;
    const std::int64_t ring = std::int64_t{config.stages} * (config.stage_bytes() + 16);
    const std::int64_t sums =
        std::int64_t{config.warpgroups()} * config.tokens * (kPanelRows + 4) * 4;
    const std::int64_t rest = std::int64_t{config.tokens} * 8 + 256;
    EXPECT_LE(std::max(ring, sums) + rest, kSharedBytes) << variant.name;
    // A warpgroup takes one step of a chunk, or none.
    EXPECT_EQ(config.k_groups % config.chunk_steps, 0) << variant.name;
    EXPECT_LE(config.k_groups / config.chunk_steps, config.stages) << variant.name;
    EXPECT_LE(config.threads(), 1024) << variant.name;
    // What all warpgroups together take of the registers that the launch gave them.
    if (config.moves_registers()) {
      EXPECT_LE(config.warpgroups() * Int4Config::kMultiplyRegisters + Int4Config::kLoadRegisters,
                (config.warpgroups() + 1) * 96)
          << variant.name;
    }
  }
}

TEST(PlanInt4Test, BlocksCoverTheProblem) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const std::int64_t tokens : {1, 8, 16, 17, 32, 33, 64, 65, 129, 512, 8192}) {
      for (const std::int64_t columns : {8, 64, 200, 2112, 6144, 10240}) {
        const Int4Plan plan = plan_int4({tokens, columns, dtype}, kSms);
        ASSERT_NE(plan.variant, nullptr);
        const Int4Config& config = plan.variant->config;
        EXPECT_EQ(config.dtype, dtype);
        EXPECT_GE(std::int64_t{plan.grid.columns} * kPanelRows * config.row_groups, columns);
        EXPECT_GE(std::int64_t{plan.grid.tokens} * config.tokens, tokens);
      }
    }
  }
}

TEST(PlanInt4Test, BatchInvariantSplitsKTheSameWayForAnyNumberOfTokens) {
  for (const std::int64_t tokens : {1, 16, 17, 33, 65, 512, 8192}) {
    for (const std::int64_t columns : {64, 6144, 10240}) {
      const Int4Shape shape{tokens, columns, DType::bf16, 64, /*batch_invariant=*/true};
      EXPECT_EQ(plan_few_tokens(shape, kSms).variant, nullptr);
      ASSERT_NE(plan_int4(shape, kSms).variant, nullptr);
      EXPECT_EQ(plan_int4(shape, kSms).variant->config.k_groups, 4);
    }
  }
}

TEST(PlanInt4Test, TheChoiceIsTheMeasuredOne) {
  const auto name = [](std::int64_t tokens, std::int64_t columns) {
    return plan_int4({tokens, columns, DType::bf16}, kSms).variant->name;
  };
  EXPECT_EQ(name(1, 6144), "int4_bf16_n64_t16");
  EXPECT_EQ(name(16, 10240), "int4_bf16_n64_t16");
  EXPECT_EQ(name(32, 6144), "int4_bf16_n64_t32");
  EXPECT_EQ(name(64, 6144), "int4_bf16_n64_t64");
  EXPECT_EQ(name(64, 10240), "int4_bf16_n128_t64");
  EXPECT_EQ(name(128, 6144), "int4_bf16_n128_t64");
  EXPECT_EQ(name(128, 10240), "int4_bf16_n64_t64");
  EXPECT_EQ(name(512, 6144), "int4_bf16_n128_t64");
  EXPECT_EQ(name(2048, 6144), "int4_bf16_n256_t64");
}

TEST(PlanInt4Test, QuartersAreSharedOutWherePanelsWouldComeInTwoRounds) {
  EXPECT_EQ(plan_few_tokens({1, 6144, DType::bf16, 32}, kSms).variant, nullptr);
  EXPECT_EQ(plan_few_tokens({17, 10240, DType::bf16, 64}, kSms).variant, nullptr);
  EXPECT_EQ(plan_few_tokens({1, 65536, DType::bf16, 64}, kSms).variant, nullptr);
  const FewTokensPlan plan = plan_few_tokens({8, 10240, DType::bf16, 64}, kSms);
  EXPECT_EQ(plan.variant->name, "int4_bf16_quarters_t8");
  EXPECT_EQ(plan.quarters, 640);
  EXPECT_EQ(plan.blocks, kSms);
  EXPECT_EQ(plan.parts, 3);
  EXPECT_EQ(plan.warps, 15);
  EXPECT_EQ(plan_few_tokens({9, 10240, DType::f16, 64}, kSms).variant->name,
            "int4_f16_quarters_t16");
}

TEST(PlanInt4Test, QuartersFitTheMachine) {
  constexpr std::int64_t kSharedBytes = 227 * 1024;  // of a block
  for (const std::int64_t tokens : {1, 7, 8, 9, 16}) {
    for (const std::int64_t columns : {8456, 10240, 12288, 20000, 38000}) {
      for (const int steps : {1, 2, 5, 32, 64, 500}) {
        const FewTokensPlan plan = plan_few_tokens({tokens, columns, DType::bf16, steps}, kSms);
        ASSERT_NE(plan.variant, nullptr);
        const int most = (plan.quarters + plan.blocks - 1) / plan.blocks;
        EXPECT_EQ(plan.warps, most * plan.parts);
        EXPECT_LE(plan.warps, kMostQuarterWarps);
        EXPECT_GE(plan.parts, 1);
        EXPECT_GE(plan.stages, 1);
        EXPECT_LE(plan.stages, kMostXStages);
        EXPECT_GE(plan.stage_bytes, 2 * plan.parts * tokens * 128);
        EXPECT_EQ(plan.stage_bytes % 1024, 0);
        const std::int64_t sums = kMostQuarterWarps * plan.variant->config.tokens * 20 * 4;
        EXPECT_LE(sums + 2048 + std::int64_t{plan.stages} * plan.stage_bytes, kSharedBytes);
      }
    }
  }
}

FusedQkvProblem packed_problem() {
  FusedQkvProblem problem;
  problem.ragged.tokens = 4;
  problem.cache.row_format = RowFormat::uniform(DType::bf16, 128);
  problem.cache.num_kv_heads = 8;
  problem.hidden = 4096;
  problem.q_dim = 4096;
  problem.weight_format = WeightFormat::gptq;
  problem.weight_packing = WeightPacking::fragments_64;
  problem.group_size = 128;
  problem.alignment = 16;
  return problem;
}

TEST(PlanInt4Test, TakesEveryPackedFormat) {
  for (const WeightFormat format :
       {WeightFormat::int4, WeightFormat::gptq, WeightFormat::gptq_v2, WeightFormat::awq}) {
    for (const std::int64_t group_size : {32, 64, 128}) {
      FusedQkvProblem problem = packed_problem();
      problem.weight_format = format;
      problem.group_size = group_size;
      EXPECT_EQ(refuse_int4_tiles(problem), "") << name(format) << " " << group_size;
    }
  }
}

TEST(PlanInt4Test, SaysWhyNot) {
  FusedQkvProblem plain = packed_problem();
  plain.weight_packing = WeightPacking::none;
  EXPECT_EQ(refuse_int4_tiles(plain), "weight is not int4 in the order that pack_weight makes");
  FusedQkvProblem f32 = packed_problem();
  f32.x_dtype = DType::f32;
  EXPECT_EQ(refuse_int4_tiles(f32), "x is neither bf16 nor f16");
  FusedQkvProblem permuted = packed_problem();
  permuted.has_perm = true;
  EXPECT_EQ(refuse_int4_tiles(permuted), "columns are permuted");
  FusedQkvProblem odd = packed_problem();
  odd.hidden = 4096 + 32;
  EXPECT_EQ(refuse_int4_tiles(odd), "columns of x are not a multiple of 64");
  FusedQkvProblem scaled = packed_problem();
  scaled.cache.row_format = RowFormat::scaled(DType::fp8_e4m3, 128, 128);
  EXPECT_EQ(refuse_int4_tiles(scaled), "");  // its rows wait in fp32
}

}  // namespace
}  // namespace quire::cuda::sm90::fused_qkv_matmul
