// SPDX-License-Identifier: Apache-2.0
// Which prefill kernel a problem gets: pure, so it needs no GPU.
#include "cuda/sm90/flash_attention/prefill/plan_prefill.h"

#include <set>

#include "cuda/llama_attention.h"
#include "gtest/gtest.h"

namespace quire::cuda::sm90::flash_attention {
namespace {

FlashAttentionProblem llama(std::int64_t page_size) {
  return test::llama_attention({.tokens = 8192, .batch = 1}, page_size);
}

TEST(PlanPrefillTest, EveryVariantFitsTheMachine) {
  constexpr std::int64_t kSharedBytes = 227 * 1024;
  constexpr std::int64_t kSmall = 1024;  // barriers, tiles, holes
  std::set<std::string_view> names;
  for (const PrefillVariant& variant : kPrefillVariants) {
    const PrefillConfig& config = variant.config;
    EXPECT_TRUE(names.insert(variant.name).second) << variant.name;
    const std::int64_t q =
        std::int64_t{config.q_buffers} * config.query_swizzle_columns() * config.cta_rows() * 128;
    const std::int64_t swizzle_columns = config.key_stages * config.key_swizzle_columns() +
                                         config.value_stages * config.value_swizzle_columns();
    // Of warpgroups that share rows: the scores of each over its columns.
    const std::int64_t parts =
        config.column_groups == 1 ? 0
                                  : std::int64_t{config.column_groups} * config.block_keys * 64 * 4;
    EXPECT_LE(q + swizzle_columns * config.block_keys * 128 + parts + kSmall, kSharedBytes)
        << variant.name;
    // A step holds a block of each while it waits for the next; not where warpgroups share rows.
    EXPECT_GE(config.key_stages, config.column_groups == 1 ? 2 : 1) << variant.name;
    EXPECT_GE(config.value_stages, config.column_groups == 1 ? 2 : 1) << variant.name;
    EXPECT_EQ(config.rows(), 128) << variant.name;
    EXPECT_EQ(config.key_swizzle_columns() % config.column_groups, 0) << variant.name;
    EXPECT_EQ(config.head_dim % 16, 0) << variant.name;
    EXPECT_EQ(config.value_dim % 16, 0) << variant.name;
    EXPECT_EQ(config.block_keys % 16, 0) << variant.name;
  }
}

// A copy brings rows of one page and of one block of keys, in whole groups of 8.
TEST(PlanPrefillTest, CopiesKeepToPagesAndBlocks) {
  for (const std::int64_t page_size : {8, 16, 24, 48, 64, 96, 128, 256, 1000}) {
    const FlashAttentionProblem problem = llama(page_size);
    ASSERT_EQ(refuse_prefill(problem), "") << page_size;
    const PrefillPlan plan = plan_prefill(problem, Scores::scaled, 132);
    EXPECT_GE(plan.box_rows, 8) << page_size;
    EXPECT_EQ(plan.box_rows % 8, 0) << page_size;
    EXPECT_EQ(page_size % plan.box_rows, 0) << page_size;
    EXPECT_EQ(plan.variant->config.block_keys % plan.box_rows, 0) << page_size;
    EXPECT_LE(plan.variant->config.block_keys / plan.box_rows, 32) << "a lane for each";
  }
}

// Rows with scales of their own, which no kernel reads directly.
FlashAttentionProblem quantized(std::int64_t batch, std::int64_t max_pages) {
  FlashAttentionProblem problem = test::llama_attention({.tokens = 64 * batch, .batch = batch}, 16);
  problem.cache.row_format = RowFormat::scaled(DType::fp8_e4m3, 128, 128);
  problem.cache.has_scales = true;
  problem.cache.max_pages = max_pages;
  return problem;
}

TEST(PlanPrefillTest, ABoundOfTheWorkspaceIsKeptByPartsOfTheBatch) {
  for (const std::int64_t batch : {1, 2, 7, 64, 300}) {
    for (const std::int64_t pages : {1, 9, 64, 500}) {
      for (const std::int64_t bound :
           {std::int64_t{3} << 20, std::int64_t{64} << 20, std::int64_t{512} << 20}) {
        FlashAttentionProblem problem = quantized(batch, pages);
        problem.max_workspace_bytes = bound;
        if (!refuse_prefill(problem).empty()) continue;  // one sequence has no room
        const FlashAttentionProblem part = launch_part(problem, Scores::scaled);
        const PrefillPlan plan = plan_prefill(part, Scores::scaled, 132);
        EXPECT_EQ(plan.path, PrefillPath::dequantized);
        EXPECT_GE(part.ragged.batch, 1);
        EXPECT_LE(PrefillWorkspace(part, plan).bytes, bound) << batch << " of " << pages;
      }
    }
  }
  FlashAttentionProblem problem = quantized(64, 500);
  EXPECT_NE(refuse_prefill(problem), "") << "copies of 2 GiB";
  problem.max_workspace_bytes = std::int64_t{512} << 20;
  EXPECT_EQ(refuse_prefill(problem), "");
  EXPECT_EQ(launch_part(problem, Scores::scaled).ragged.batch, 15);
  problem.max_workspace_bytes = std::int64_t{16} << 20;
  EXPECT_NE(refuse_prefill(problem), "") << "not even one sequence";
}

TEST(PlanPrefillTest, PacksHeadsOfOneKvHead) {
  FlashAttentionProblem problem = llama(16);
  for (const std::int64_t group : {1, 2, 3, 4, 6, 7, 8, 12, 16, 128, 256}) {
    problem.heads = group * problem.cache.num_kv_heads;
    const PrefillPlan plan = plan_prefill(problem, Scores::scaled, 132);
    const std::int64_t packed = std::int64_t{1} << plan.tile_heads_log2;
    EXPECT_EQ(group % packed, 0) << group;
    EXPECT_LE(packed, plan.variant->config.rows()) << group;
  }
}

TEST(PlanPrefillTest, NoMoreBlocksThanTilesOrProcessors) {
  FlashAttentionProblem problem = llama(16);
  EXPECT_EQ(plan_prefill(problem, Scores::scaled, 132).blocks, 132);
  problem.ragged = {.tokens = 1, .batch = 1};
  EXPECT_EQ(plan_prefill(problem, Scores::scaled, 132).blocks, 132);  // parts of tiles
  problem.batch_invariant = true;
  EXPECT_EQ(plan_prefill(problem, Scores::scaled, 132).blocks, 8);  // one for each KV head
}

// Two CTAs have the two halves of a tile's rows.
TEST(PlanPrefillTest, HeadsOf512AreClustersOfTwo) {
  FlashAttentionProblem problem = llama(16);
  problem.heads = 8 * problem.cache.num_kv_heads;
  problem.head_dim = problem.value_dim = 512;
  problem.cache.row_format = RowFormat::uniform(DType::bf16, 512);
  const auto kernel = [&](Scores scores) {
    EXPECT_EQ(refuse_prefill(problem), "");
    return plan_prefill(problem, scores, 132).variant->name;
  };
  EXPECT_EQ(kernel(Scores::scaled), "bf16_d512");
  EXPECT_EQ(kernel(Scores::modified), "bf16_d512_modified");
  EXPECT_EQ(plan_prefill(problem, Scores::scaled, 132).blocks, 132);
  EXPECT_EQ(plan_prefill(problem, Scores::scaled, 131).blocks, 130);
  EXPECT_FALSE(plan_prefill(problem, Scores::scaled, 132).cuts_tail);
  problem.ragged = {.tokens = 16, .batch = 1};
  EXPECT_EQ(plan_prefill(problem, Scores::scaled, 132).blocks, 2 * 8 * 2);  // of at most two tiles
  problem.ragged = {.tokens = 8192, .batch = 1};
  problem.cache.row_format = RowFormat::uniform(DType::fp8_e4m3, 512);
  EXPECT_EQ(kernel(Scores::scaled), "bf16_d512");
  EXPECT_EQ(prefill_path(problem, Scores::scaled), PrefillPath::dequantized);
  problem.q_dtype = problem.out_dtype = DType::f16;
  problem.cache.row_format = RowFormat::uniform(DType::f16, 512);
  EXPECT_EQ(kernel(Scores::scaled), "f16_d512_modified");
  problem.value_dim = 256;
  EXPECT_NE(refuse_prefill(problem), "");
  problem.head_dim = problem.value_dim = 384;
  EXPECT_NE(refuse_prefill(problem), "");
}

TEST(PlanPrefillTest, CutsTheLastTilesWhereNothingForbidsIt) {
  FlashAttentionProblem problem = llama(16);
  EXPECT_TRUE(plan_prefill(problem, Scores::scaled, 132).cuts_tail);
  problem.ragged.batch = 33;
  EXPECT_FALSE(plan_prefill(problem, Scores::scaled, 132).cuts_tail);
  problem.ragged.batch = 1;
  problem.ragged.max_keys = 1024;
  EXPECT_FALSE(plan_prefill(problem, Scores::scaled, 132).cuts_tail);
  problem.ragged.max_keys = -1;
  problem.batch_invariant = true;
  EXPECT_FALSE(plan_prefill(problem, Scores::scaled, 132).cuts_tail);
}

PrefillPath path_of(const FlashAttentionProblem& problem, Scores scores = Scores::scaled) {
  EXPECT_EQ(refuse_prefill(problem), "");
  const PrefillPlan plan = plan_prefill(problem, scores, 132);
  // The kernel of a path is started in the path's own way.
  const bool has_fp8_products = plan.path == PrefillPath::fp8;
  const bool is_dequantizing = plan.path == PrefillPath::dequantizing;
  EXPECT_EQ(plan.variant->launch_fp8 != nullptr, has_fp8_products);
  EXPECT_EQ(plan.variant->launch_dequantizing != nullptr, is_dequantizing);
  EXPECT_EQ(plan.variant->launch == nullptr, has_fp8_products || is_dequantizing);
  return plan.path;
}

TEST(PlanPrefillTest, Fp8WgmmaShareAnDequantizedCache) {
  FlashAttentionProblem problem = llama(16);
  EXPECT_EQ(path_of(problem), PrefillPath::direct);
  problem.cache.row_format = RowFormat::uniform(DType::fp8_e4m3, 128);
  EXPECT_EQ(path_of(problem), PrefillPath::dequantizing);
  EXPECT_EQ(path_of(problem, Scores::modified), PrefillPath::dequantized);
  problem.ragged.tokens = 100;
  EXPECT_EQ(path_of(problem), PrefillPath::direct);
  problem.cache.row_format = RowFormat::scaled(DType::fp8_e4m3, 128, 128);
  EXPECT_EQ(path_of(problem), PrefillPath::dequantized);
  problem.cache.has_scales = problem.has_head_scales = true;
  EXPECT_EQ(path_of(problem), PrefillPath::direct);
  problem.cache.row_format = RowFormat::scaled(DType::i8, 128, 32);
  EXPECT_EQ(path_of(problem), PrefillPath::dequantized);
}

TEST(PlanPrefillTest, ProductsOfE4m3OnlyWhereTheyAreAllowed) {
  FlashAttentionProblem problem = llama(16);
  problem.allow_fp8_products = true;
  EXPECT_EQ(path_of(problem), PrefillPath::direct);
  problem.cache.row_format = RowFormat::uniform(DType::fp8_e4m3, 128);
  EXPECT_EQ(path_of(problem), PrefillPath::fp8);
  EXPECT_EQ(path_of(problem, Scores::modified), PrefillPath::dequantized);
  problem.allow_fp8_products = false;
  EXPECT_EQ(path_of(problem), PrefillPath::dequantizing);
}

// What makes blocks of the keys that queries see would wait for ever for those of a query that sees none.
TEST(PlanPrefillTest, KeyLengthsKeepToPathsThatReadPages) {
  FlashAttentionProblem problem = llama(16);
  problem.has_key_lengths = true;
  EXPECT_EQ(path_of(problem), PrefillPath::direct);
  problem.cache.row_format = RowFormat::uniform(DType::fp8_e4m3, 128);
  EXPECT_EQ(path_of(problem), PrefillPath::dequantized);
  problem.allow_fp8_products = true;
  EXPECT_EQ(path_of(problem), PrefillPath::dequantized);
  problem.ragged.max_keys = 0;
  EXPECT_EQ(plan_prefill(problem, Scores::scaled, 132).columns, 1);
}

TEST(PlanPrefillTest, RaggedKeysAreReadAsTheyAre) {
  FlashAttentionProblem problem = llama(16384);
  problem.has_ragged_keys = true;
  problem.cache.num_pages = problem.cache.max_pages = 1;
  ASSERT_EQ(refuse_prefill(problem), "");
  EXPECT_EQ(path_of(problem), PrefillPath::direct);
  EXPECT_EQ(plan_prefill(problem, Scores::scaled, 132).box_rows,
            plan_prefill(problem, Scores::scaled, 132).variant->config.block_keys);
  problem.cache.row_format = RowFormat::uniform(DType::fp8_e4m3, 128);
  EXPECT_EQ(path_of(problem), PrefillPath::direct);
  problem.cache.row_format = RowFormat::uniform(DType::fp8_e5m2, 128);
  EXPECT_NE(refuse_prefill(problem), "");
}

TEST(PlanPrefillTest, ValuesOfTheirOwnStridesAreNotReadBesideKeys) {
  FlashAttentionProblem problem = llama(16);
  problem.cache.row_format = RowFormat::uniform(DType::fp8_e4m3, 128);
  problem.cache.values_match_keys = false;
  EXPECT_EQ(path_of(problem), PrefillPath::dequantized);
}

// 128 heads of MLA prefill's width, each with keys of its own.
FlashAttentionProblem latent_heads_of_e4m3(std::int64_t page_size) {
  FlashAttentionProblem problem = llama(page_size);
  problem.allow_fp8_products = true;
  problem.heads = problem.cache.num_kv_heads = 128;
  problem.head_dim = 192;
  problem.cache.row_format = RowFormat::uniform(DType::fp8_e4m3, 192);
  return problem;
}

// A 16-bit copy of this cache does not fit into 1 GiB, transposed values do.
TEST(PlanPrefillTest, OnlyWhatThePathNeedsMustFit) {
  FlashAttentionProblem problem = latent_heads_of_e4m3(128);
  problem.cache.max_pages = 192;
  problem.ragged = {.tokens = 8192, .batch = 1};
  EXPECT_EQ(path_of(problem), PrefillPath::fp8);
  problem.scale = -0.125;
  EXPECT_NE(refuse_prefill(problem), "");
  problem.cache.max_pages = 64;
  EXPECT_EQ(refuse_prefill(problem), "");
}

// For a few tiles of rows V is transposed by each of them: no other kernel, no workspace for it.
TEST(PlanPrefillTest, FewTilesOfRowsTransposeValuesThemselves) {
  FlashAttentionProblem problem = latent_heads_of_e4m3(64);
  problem.cache.max_pages = 64;
  problem.ragged = {.tokens = 2048, .batch = 1};
  EXPECT_EQ(path_of(problem), PrefillPath::transposing);
  problem.ragged = {.tokens = 8192, .batch = 4};
  EXPECT_EQ(path_of(problem), PrefillPath::transposing);
  EXPECT_TRUE(plan_prefill(problem, Scores::scaled, 132).variant->transposes());
  problem.ragged.batch = 2;
  EXPECT_EQ(path_of(problem), PrefillPath::fp8);
  EXPECT_FALSE(plan_prefill(problem, Scores::scaled, 132).variant->transposes());
}

// Many of them leave the tensor cores enough to do while a warp transposes what comes later.
TEST(PlanPrefillTest, ManyTilesOfRowsHaveValuesTransposedAhead) {
  FlashAttentionProblem problem = llama(16);
  problem.cache.row_format = RowFormat::uniform(DType::fp8_e4m3, 128);
  problem.allow_fp8_products = true;
  EXPECT_TRUE(plan_prefill(problem, Scores::scaled, 132).transposes_ahead);
  problem.ragged.tokens = 512;
  const PrefillPlan few = plan_prefill(problem, Scores::scaled, 132);
  EXPECT_EQ(few.path, PrefillPath::fp8);
  EXPECT_FALSE(few.transposes_ahead);
}

TEST(PlanPrefillTest, ProductsOfE4m3AtTheHeadsOfLatentAttention) {
  FlashAttentionProblem problem = llama(16);
  problem.head_dim = 192;
  problem.cache.row_format = RowFormat::uniform(DType::fp8_e4m3, 192);
  EXPECT_EQ(path_of(problem), PrefillPath::dequantized);
  problem.allow_fp8_products = true;
  EXPECT_EQ(path_of(problem), PrefillPath::fp8);
  problem.q_dtype = problem.out_dtype = DType::f16;
  EXPECT_EQ(path_of(problem), PrefillPath::dequantized);
}

// Which other sequences there are must not decide how one is computed.
TEST(PlanPrefillTest, InvariantPathsDependOnNoBatch) {
  FlashAttentionProblem problem = llama(16);
  problem.batch_invariant = true;
  for (const RowFormat& format :
       {RowFormat::uniform(DType::fp8_e4m3, 128), RowFormat::scaled(DType::fp8_e4m3, 128, 128)}) {
    problem.cache.row_format = format;
    std::set<PrefillPath> paths;
    for (const std::int64_t batch : {1, 16, 4096}) {
      for (const std::int64_t tokens : {4096, 1 << 20}) {
        problem.ragged = {.tokens = tokens, .batch = batch};
        paths.insert(path_of(problem));
      }
    }
    EXPECT_EQ(paths.size(), 1u);
  }
}

TEST(PlanPrefillTest, SaysWhyItRefuses) {
  const auto refusal = [](auto change) {
    FlashAttentionProblem problem = llama(16);
    change(problem);
    return refuse_prefill(problem);
  };
  const auto names = [](const std::string& reason, const std::string& part) {
    return reason.find(part) != std::string::npos;
  };
  EXPECT_TRUE(names(refusal([](auto& p) { p.q_dtype = DType::f32; }), "bf16 or f16"));
  EXPECT_TRUE(names(refusal([](auto& p) {
                      p.q_dtype = p.out_dtype = DType::f16;
                      p.cache.row_format = RowFormat::scaled(DType::i8, 128, 128);
                    }),
                    "q must be bf16"));
  EXPECT_TRUE(names(refusal([](auto& p) {
                      p.cache.row_format = RowFormat::scaled(DType::i8, 128, 128);
                      p.cache.max_pages = 1 << 20;
                    }),
                    "1 GiB"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.cache.is_mla = true; }), "MLA"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.out_dtype = DType::f32; }), "out"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.head_dim = 72; }), "head_dim 72"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.cache.page_size = 4; }), "page_size"));
  EXPECT_TRUE(names(refusal([](auto& p) { p.alignment = 8; }), "16 bytes"));
  EXPECT_TRUE(
      names(refusal([](auto& p) { p.mask = (Mask() | Mask::chunked(4)).summary(); }), "interval"));
  const auto own = Mask::key_intervals({}, {});
  EXPECT_TRUE(names(refusal([&](auto& p) { p.mask = (own & own).summary(); }),
                    "more than one set of key intervals"));
}

// Kernels whose scores are only scaled have no registers for them, nor have those of e4m3 products.
TEST(PlanPrefillTest, KeyIntervalsAreForKernelsThatModifyScores) {
  FlashAttentionProblem problem = llama(16);
  EXPECT_EQ(scores_of(problem), Scores::scaled);
  problem.mask = (Mask::causal() & Mask::key_intervals({}, {})).summary();
  EXPECT_EQ(refuse_prefill(problem), "");
  EXPECT_EQ(scores_of(problem), Scores::modified);
  const auto takes_intervals = [&] {
    return plan_prefill(problem, scores_of(problem), 132).variant->config.takes_intervals();
  };
  EXPECT_TRUE(takes_intervals());
  problem.cache.row_format = RowFormat::uniform(DType::fp8_e4m3, 128);
  for (const bool allow : {false, true}) {
    problem.allow_fp8_products = allow;
    EXPECT_EQ(refuse_prefill(problem), "");
    EXPECT_TRUE(takes_intervals());
  }
}

}  // namespace
}  // namespace quire::cuda::sm90::flash_attention
