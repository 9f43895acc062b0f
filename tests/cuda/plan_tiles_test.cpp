// SPDX-License-Identifier: Apache-2.0
// Which tile kernel a projection gets: pure, so it needs no GPU.
#include "cuda/sm90/fused_qkv_matmul/plan_tiles.h"

#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/common/matmul/config.h"
#include "cuda/common/mma/row_order.h"
#include "cuda/sm90/fused_qkv_matmul/outputs.h"
#include "gtest/gtest.h"

namespace quire::cuda::sm90::fused_qkv_matmul {
namespace {

constexpr int kSms = 132;

// dtype and scaling of every kind of product.
constexpr std::pair<DType, Scaling> kProducts[] = {{DType::bf16, Scaling::none},
                                                   {DType::f16, Scaling::none},
                                                   {DType::f32, Scaling::none},
                                                   {DType::fp8_e4m3, Scaling::rows},
                                                   {DType::fp8_e4m3, Scaling::blocks}};

// Of shared.cuh; the compiler checks its exact size.
std::int64_t shared_bytes(const TileConfig& config) {
  const std::int64_t ring =
      std::int64_t{config.stages} * ((config.kept_tokens + config.tile_n) * 128 + 16);
  const std::int64_t two_tiles = 2 * (std::int64_t{config.tokens()} * 8 + config.tile_n * 4 + 16);
  const std::int64_t finished =
      config.scaling == Scaling::none ? 0 : 2 * 4 * (config.tokens() + config.tile_n);
  const std::int64_t blocks =
      config.scaling == Scaling::blocks ? config.stages * 4 * (config.tokens() + 2) : 0;
  return ring + two_tiles + finished + blocks;
}

TEST(PlanTilesTest, EveryVariantFitsTheMachine) {
  constexpr std::int64_t kSharedBytes = 228 * 1024;  // of a multiprocessor
  constexpr std::int64_t kReserved = 1024;           // of them for every block
  for (const TileVariant& variant : kTileVariants) {
    const TileConfig& config = variant.config;
    EXPECT_LE(config.blocks_per_sm * (shared_bytes(config) + kReserved), kSharedBytes)
        << variant.name;
    EXPECT_EQ(config.tile_n % kGroupRows, 0) << variant.name;
    // A sharer's rows of x begin on an atom of 8 rows.
    EXPECT_EQ(config.kept_tokens % (8 * config.token_sharers()), 0) << variant.name;
  }
}

// Sums, products and what else a thread keeps must fit its registers, and a tile of block scales must
// not touch a third block of weight rows.
TEST(PlanTilesTest, PromotedSumsFit) {
  for (const TileVariant& variant : kTileVariants) {
    const TileConfig& config = variant.config;
    EXPECT_EQ(config.has_scales(), is_fp8(config.dtype)) << variant.name;
    const Scaling promoted = config.promoted_scaling();
    const int products = promoted == Scaling::rows     ? config.tile_n
                         : promoted == Scaling::blocks ? config.part_sets() * config.part_n()
                                                       : 0;
    EXPECT_LE((config.tile_n + products) / 2, 192) << variant.name;
    if (config.scaling != Scaling::blocks) continue;
    EXPECT_EQ(config.part_n() % 16, 0) << variant.name;
    for (int column = 0; column < 128 * config.tile_n; column += config.tile_n) {
      EXPECT_LE(column % 128 + config.tile_n, 256) << variant.name << " at " << column;
    }
  }
}

TEST(PlanTilesTest, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const TileVariant& variant : kTileVariants) {
    EXPECT_TRUE(names.insert(variant.name).second) << variant.name;
  }
}

// Tiles cover every token and column, and no block is idle for ever.
TEST(PlanTilesTest, TilesCoverTheProblem) {
  for (const auto& [dtype, scaling] : kProducts) {
    for (const std::int64_t tokens : {1, 7, 8, 16, 17, 64, 65, 128, 129, 511, 2048, 100000}) {
      for (const std::int64_t columns : {32, 96, 2112, 6144, 10240}) {
        const TilePlan plan = plan_tiles({tokens, columns, dtype, scaling}, kSms);
        ASSERT_NE(plan.variant, nullptr);
        const TileConfig& config = plan.variant->config;
        EXPECT_GE(plan.grid.rows * std::int64_t{config.tokens()} * config.weight_sharers(), tokens);
        const std::int64_t width = std::int64_t{config.tile_n} * config.token_sharers();
        EXPECT_LE(plan.tail.rows, plan.grid.rows);
        if (plan.tail.rows < plan.grid.rows) {
          EXPECT_GE((plan.grid.columns + plan.tail.whole_columns) * width, columns);
        }
        if (plan.tail.rows > 0) {
          EXPECT_TRUE(config.has_tail());
          EXPECT_GE(plan.grid.columns * width + plan.tail.columns * std::int64_t{config.tail_n},
                    columns);
        }
        const std::int64_t fetched = std::int64_t{plan.box_tokens} * config.token_sharers();
        EXPECT_GE(fetched * plan.grid.rows * config.weight_sharers(), tokens);
        EXPECT_LE(fetched, config.kept_tokens);
        EXPECT_EQ(plan.box_tokens % 8, 0);
        EXPECT_GT(plan.blocks, 0);
        EXPECT_EQ(plan.blocks % config.cluster, 0);
        EXPECT_LE(plan.blocks, kSms * config.blocks_per_sm);
      }
    }
  }
}

// Rows past the end are dear: a tile holds no more of them than its copies' steps of 8 rows make.
TEST(PlanTilesTest, TokensAreSharedOutEvenly) {
  const TilePlan plan = plan_tiles({150, 6144, DType::bf16}, kSms);
  EXPECT_EQ(plan.variant->name, "bf16_n96");
  EXPECT_EQ(plan.box_tokens, 80);
  EXPECT_EQ(plan_tiles({300, 6144, DType::bf16}, kSms).box_tokens, 80);
  EXPECT_EQ(plan_tiles({8193, 6144, DType::bf16}, kSms).box_tokens, 128);
  // The cases two_tiles_of_tokens…: the second tile is moved up by ten tokens.
  for (const auto& [dtype, scaling] : kProducts) {
    const TilePlan two = plan_tiles({150, 4416, dtype, scaling}, kSms);
    EXPECT_TRUE(two.variant->name.ends_with("_n96")) << two.variant->name;
    EXPECT_EQ(two.box_tokens, 80);
  }
}

TEST(PlanTilesTest, FewTokensReadTheWeightsOnce) {
  for (const std::int64_t tokens : {1, 16, 64, 128, 129, 256}) {
    for (const std::int64_t columns : {6144, 10240}) {
      EXPECT_EQ(plan_tiles({tokens, columns, DType::bf16}, kSms).grid.rows, 1)
          << tokens << " × " << columns;
    }
  }
}

TEST(PlanTilesTest, TheChoiceIsTheMeasuredOne) {
  const auto name = [](std::int64_t tokens, std::int64_t columns) {
    return plan_tiles({tokens, columns, DType::bf16}, kSms).variant->name;
  };
  EXPECT_EQ(name(1, 6144), "bf16_n64_t16");
  EXPECT_EQ(name(64, 6144), "bf16_n64_t64");
  EXPECT_EQ(name(64, 10240), "bf16_n96_t64");
  EXPECT_EQ(name(128, 6144), "bf16_n64_t128");
  EXPECT_EQ(name(129, 6144), "bf16_n96");
  EXPECT_EQ(name(256, 6144), "bf16_n96");
  EXPECT_EQ(name(128, 10240), "bf16_n96_t128");
  EXPECT_EQ(name(256, 10240), "bf16_n160");
  EXPECT_EQ(name(512, 6144), "bf16_n192");
  EXPECT_EQ(name(512, 10240), "bf16_n160");
  EXPECT_EQ(name(2048, 6144), "bf16_n256");
  EXPECT_EQ(name(8192, 6144), "bf16_n256_narrow");
}

TEST(PlanTilesTest, TheChoiceForFp8IsTheMeasuredOne) {
  const auto name = [](std::int64_t tokens, std::int64_t columns, Scaling scaling) {
    return plan_tiles({tokens, columns, DType::fp8_e4m3, scaling}, kSms).variant->name;
  };
  EXPECT_EQ(name(128, 6144, Scaling::rows), "fp8_rows_n64_t128");
  EXPECT_EQ(name(512, 6144, Scaling::rows), "fp8_rows_n192");
  EXPECT_EQ(name(8192, 6144, Scaling::rows), "fp8_rows_n192");
  EXPECT_EQ(name(512, 10240, Scaling::rows), "fp8_rows_n160");
  EXPECT_EQ(name(2048, 10240, Scaling::rows), "fp8_rows_n192");
  EXPECT_EQ(name(8192, 10240, Scaling::rows), "fp8_rows_n192");
  EXPECT_EQ(name(512, 6144, Scaling::blocks), "fp8_blocks_n192");
  EXPECT_EQ(name(512, 10240, Scaling::blocks), "fp8_blocks_n160");
  EXPECT_EQ(name(520, 6144, Scaling::blocks), "fp8_blocks_n160");
  EXPECT_EQ(name(2048, 6144, Scaling::blocks), "fp8_blocks_n256");
  EXPECT_EQ(name(2048, 10240, Scaling::blocks), "fp8_blocks_n256");
  EXPECT_EQ(name(8192, 10240, Scaling::blocks), "fp8_blocks_n256_narrow");
}

TEST(PlanTilesTest, SumsStayInTheTensorCoresOnlyByLeave) {
  const auto name = [](TileShape shape, bool allow_fast_accum) {
    shape.allow_fast_accum = allow_fast_accum;
    return plan_tiles(shape, kSms).variant->name;
  };
  for (const std::int64_t tokens : {1, 64, 129, 512, 2021, 2048, 8192}) {
    for (const std::int64_t columns : {2048, 6144, 10240}) {
      const TileShape shape{tokens, columns, DType::fp8_e4m3, Scaling::rows};
      EXPECT_TRUE(name(shape, false).starts_with("fp8_rows_")) << tokens << " × " << columns;
    }
  }
  // The cases fast_accum and fast_accum_bias_fp8_cache, and models.
  for (const auto& [tokens, columns] : {std::pair<std::int64_t, std::int64_t>{2021, 2048},
                                        {2048, 6144},
                                        {8192, 6144},
                                        {2048, 10240},
                                        {8192, 10240}}) {
    const TileShape shape{tokens, columns, DType::fp8_e4m3, Scaling::rows};
    EXPECT_TRUE(name(shape, true).starts_with("fp8_fast_accum_n256")) << tokens << " × " << columns;
  }
  EXPECT_EQ(name({8192, 6144, DType::fp8_e4m3, Scaling::blocks}, true), "fp8_blocks_n256_narrow");
  EXPECT_EQ(name({8192, 6144, DType::bf16}, true), "bf16_n256_narrow");
}

TEST(PlanTilesTest, TheChoiceForTf32IsTheMeasuredOne) {
  const auto name = [](std::int64_t tokens, std::int64_t columns) {
    return plan_tiles({tokens, columns, DType::f32}, kSms).variant->name;
  };
  EXPECT_EQ(name(1, 6144), "tf32_n64_t16");
  EXPECT_EQ(name(64, 6144), "tf32_n64_t64");
  EXPECT_EQ(name(128, 6144), "tf32_n64_t128");
  EXPECT_EQ(name(256, 6144), "tf32_n96");
  EXPECT_EQ(name(512, 6144), "tf32_n192");
  EXPECT_EQ(name(2048, 6144), "tf32_n256");
  EXPECT_EQ(name(8192, 6144), "tf32_n256");
  // The cases tf32_few_tokens_many_columns, …two_tiles_of_tokens, …128_tokens_many_columns,
  // …one_round_of_192_columns and …256_columns.
  EXPECT_EQ(name(33, 8704), "tf32_n96_t64");
  EXPECT_EQ(name(150, 4416), "tf32_n96");
  EXPECT_EQ(name(100, 8704), "tf32_n96_t128");
  EXPECT_EQ(name(501, 6144), "tf32_n192");
  EXPECT_EQ(name(385, 8448), "tf32_n256");
}

FusedQkvProblem f32_problem() {
  FusedQkvProblem problem;
  problem.cache.row_format = RowFormat::uniform(DType::f32, 128);
  problem.cache.num_kv_heads = 8;
  problem.hidden = 4096;
  problem.q_dim = 4096;
  problem.x_dtype = problem.weight_dtype = problem.out_dtype = DType::f32;
  problem.alignment = 128;
  return problem;
}

// A permission: f32 products stay what they are without it, and no other product needs it.
TEST(PlanTilesTest, F32ProductsAreTakenWhereTheyMayBeOfTf32) {
  FusedQkvProblem problem = f32_problem();
  EXPECT_EQ(refuse_tiles(problem), "tf32 products are not allowed");
  problem.allow_tf32 = true;
  EXPECT_EQ(refuse_tiles(problem), "");
  problem.weight_dtype = DType::bf16;
  EXPECT_NE(refuse_tiles(problem), "");
  problem.x_dtype = DType::bf16;
  EXPECT_EQ(refuse_tiles(problem), "");
  problem.allow_tf32 = false;
  EXPECT_EQ(refuse_tiles(problem), "");
}

TEST(PlanTilesTest, SumsOfE4m3AreGoodEnoughFor16BitsOnly) {
  FusedQkvProblem problem = f32_problem();
  problem.weight_format = WeightFormat::fp8;
  problem.x_dtype = problem.weight_dtype = DType::fp8_e4m3;
  problem.out_dtype = DType::bf16;
  problem.cache.row_format = RowFormat::uniform(DType::bf16, 128);
  EXPECT_EQ(refuse_tiles(problem), "");
  for (const bool is_out : {true, false}) {
    FusedQkvProblem wide = problem;
    (is_out ? wide.out_dtype : wide.cache.row_format.parts[0].dtype) = DType::f32;
    EXPECT_NE(refuse_tiles(wide), "");
    wide.allow_fast_accum = true;
    EXPECT_EQ(refuse_tiles(wide), "");
    wide.has_block_scales = true;
    EXPECT_NE(refuse_tiles(wide), "");
  }
}

// Their sums are moved out of the tensor cores every 128 of K, as with block scales.
TEST(PlanTilesTest, F16ResultsHaveShortSums) {
  FusedQkvProblem product{.q_dim = 4096, .x_dtype = DType::fp8_e4m3, .out_dtype = DType::bf16};
  product.ragged.tokens = 512;
  product.cache.num_kv_heads = 8;
  product.cache.row_format = RowFormat::uniform(DType::bf16, 128);
  EXPECT_EQ(tile_shape(product).columns, 6144);
  EXPECT_EQ(tile_shape(product).scaling, Scaling::rows);
  for (const bool is_out : {true, false}) {
    FusedQkvProblem half = product;
    (is_out ? half.out_dtype : half.cache.row_format.parts[0].dtype) = DType::f16;
    EXPECT_EQ(tile_shape(half).scaling, Scaling::blocks);
    half.allow_fast_accum = true;
    EXPECT_EQ(tile_shape(half).scaling, Scaling::rows);
    half.x_dtype = DType::bf16;
    EXPECT_EQ(tile_shape(half).scaling, Scaling::none);
  }
  product.has_block_scales = true;
  EXPECT_EQ(tile_shape(product).scaling, Scaling::blocks);
}

// A round of whole tiles that is half empty is filled up.
TEST(PlanTilesTest, TailTilesEndALaunchSooner) {
  const auto plan = [](std::int64_t tokens, std::int64_t columns, bool allow_fast_accum = false) {
    return plan_tiles({tokens, columns, DType::fp8_e4m3, Scaling::rows, allow_fast_accum}, kSms);
  };
  EXPECT_EQ(plan(2048, 10240).grid.columns, 49);
  EXPECT_EQ(plan(2048, 10240).tail.columns, 9);
  EXPECT_EQ(plan(2048, 10240).tail.rows, 8);
  EXPECT_EQ(plan(8192, 10240).grid.columns, 53);
  EXPECT_EQ(plan(8192, 10240).tail.columns, 1);
  EXPECT_EQ(plan(2048, 6144).tail.rows, 0);
  EXPECT_EQ(plan(8192, 6144).tail.rows, 0);
  EXPECT_EQ(plan(512, 6144).tail.rows, 0);
  EXPECT_EQ(plan(2048, 6144, true).tail.rows, 0);
  EXPECT_EQ(plan(2048, 6144, true).variant->name, "fp8_fast_accum_n256");
  // The cases fp8_half_tiles and fp8_half_tiles_in_the_last_round.
  EXPECT_GT(plan(129, 14976).tail.rows, 0);
  EXPECT_GT(plan(1793, 3168).tail.rows, 0);
}

// 768 tiles of 256 columns for 66 clusters: 11 rounds of whole ones, and 56 narrow ones in the last 14 rows.
TEST(PlanTilesTest, SomeRowsHaveTailTiles) {
  for (const auto& [dtype, scaling, allow_fast_accum] :
       {std::tuple{DType::bf16, Scaling::none, false},
        std::tuple{DType::fp8_e4m3, Scaling::rows, true},
        std::tuple{DType::fp8_e4m3, Scaling::blocks, false}}) {
    const TilePlan plan = plan_tiles({8192, 6144, dtype, scaling, allow_fast_accum}, kSms);
    EXPECT_EQ(plan.variant->config.tile_n, 256);
    EXPECT_EQ(plan.grid.columns, 21);
    EXPECT_EQ(plan.tail.whole_columns, 3);
    EXPECT_EQ(plan.tail.rows, 14);
    EXPECT_EQ(plan.tail.columns, 4);
    // The cases narrow_tiles*.
    const TilePlan small =
        plan_tiles({1025, allow_fast_accum ? 9184 : 8416, dtype, scaling, allow_fast_accum}, kSms);
    EXPECT_EQ(small.variant->config.tile_n, 256);
    EXPECT_EQ(small.tail.rows, 4);
  }
}

// Every narrow tile is computed once, whatever the whole ones leave, and no cluster is two of them behind another.
TEST(TailTilesTest, EveryClusterHasItsShare) {
  constexpr int kClusters = 7;
  constexpr int kTail = 40;
  for (const int share : {1, 2}) {
    for (int whole = kClusters; whole <= 3 * kClusters; ++whole) {
      std::vector<int> times(kTail);
      std::set<int> ends;  // of clusters, in narrow tiles
      for (int cluster = 0; cluster < kClusters; ++cluster) {
        int had = 0;
        for (int next; (next = tail_tile(whole, kClusters, cluster, had, share)) < kTail; ++had) {
          ++times[static_cast<std::size_t>(next)];
        }
        ends.insert(share * ((whole - cluster + kClusters - 1) / kClusters) + had);
      }
      for (const int n : times) EXPECT_EQ(n, 1) << whole << " whole tiles";
      EXPECT_LE(*ends.rbegin() - *ends.begin(), 1) << whole << " whole tiles";
    }
  }
}

// K and V rows that the tile kernels code themselves.
TEST(PlanCodesTest, WhoseColumnsTilesHold) {
  const auto scaled = [](std::int32_t width, std::int32_t granularity, std::int64_t q_dim) {
    return coded_granule(RowFormat::scaled(DType::fp8_e4m3, width, granularity), q_dim, false);
  };
  EXPECT_EQ(scaled(128, 128, 4096), 128);
  EXPECT_EQ(scaled(128, 1 << 20, 4096), 128);  // a scale for each row
  EXPECT_EQ(scaled(128, 64, 4096), 64);
  EXPECT_EQ(scaled(96, 32, 4096), 32);
  EXPECT_EQ(scaled(256, 256, 4096), 256);
  EXPECT_EQ(coded_granule(RowFormat::scaled(DType::i8, 64, 64), 4096, false), 64);
  EXPECT_EQ(coded_granule(RowFormat::mla_fp8_block(), 1536, true), 128);
}

TEST(PlanCodesTest, OthersWait) {
  const auto scaled = [](std::int32_t width, std::int32_t granularity, std::int64_t q_dim) {
    return coded_granule(RowFormat::scaled(DType::fp8_e4m3, width, granularity), q_dim, false);
  };
  EXPECT_EQ(scaled(128, 16, 4096), 0);   // part of a quad's columns
  EXPECT_EQ(scaled(96, 96, 4096), 0);    // not a power of two
  EXPECT_EQ(scaled(160, 128, 4096), 0);  // the last one is shorter
  EXPECT_EQ(scaled(128, 128, 4128), 0);  // Q ends within what would be a granule
  EXPECT_EQ(scaled(512, 512, 4096), 0);  // more than two blocks' columns
  EXPECT_EQ(coded_granule(RowFormat::scaled(DType::i8, 128, 128, DType::f16), 4096, false), 0);
  EXPECT_EQ(coded_granule(RowFormat::mla_fp8_token(), 1536, true), 0);  // the rope is scaled too
  EXPECT_EQ(coded_granule(RowFormat::uniform(DType::fp8_e4m3, 128), 4096, false), 0);
}

// Of every product, granule and number of tokens; a pair's tiles stand in one cluster.
TEST(PlanCodesTest, TilesHoldWholeGranules) {
  for (const auto& [dtype, scaling] : kProducts) {
    if (dtype == DType::f32) continue;  // its rows wait
    for (const int granule : {32, 64, 128, 256}) {
      for (const std::int64_t tokens : {1, 16, 17, 64, 65, 128, 129, 511, 2048, 100000}) {
        for (const std::int64_t columns : {576, 2112, 6144, 10240}) {
          const TilePlan plan = plan_tiles({tokens, columns, dtype, scaling, false, granule}, kSms);
          ASSERT_NE(plan.variant, nullptr) << tokens << " × " << columns;
          const TileConfig& config = plan.variant->config;
          EXPECT_EQ(config.kv_rows, KvRows::codes);
          EXPECT_EQ(plan.tail.rows, 0);
          const int held = config.token_sharers() > 1 ? 2 * config.tile_n : config.tile_n;
          EXPECT_EQ(held % granule, 0) << plan.variant->name;
          EXPECT_TRUE(config.token_sharers() == 1 || config.token_sharers() % 2 == 0);
        }
      }
    }
  }
}

TEST(PlanCodesTest, TheChoice) {
  const auto name = [](std::int64_t tokens, std::int64_t columns) {
    return plan_tiles({tokens, columns, DType::bf16, Scaling::none, false, 128}, kSms)
        .variant->name;
  };
  EXPECT_EQ(name(1, 6144), "bf16_codes_n64_t64");
  EXPECT_EQ(name(64, 6144), "bf16_codes_n64_t64");
  EXPECT_EQ(name(64, 10240), "bf16_codes_n128_t64");
  EXPECT_EQ(name(128, 6144), "bf16_codes_n64_t128");
  EXPECT_EQ(name(128, 10240), "bf16_codes_n128_t128");
  EXPECT_EQ(name(150, 6144), "bf16_codes_n128");
  EXPECT_EQ(name(512, 6144), "bf16_codes_n192");
  EXPECT_EQ(name(2048, 6144), "bf16_codes_n256");
  EXPECT_EQ(name(8192, 6144), "bf16_codes_n256");
}

// The cases scaled_<product>_<tile> reach the kernels they are named after.
TEST(PlanCodesTest, EveryKernelHasACase) {
  for (const auto& [dtype, scaling] : kProducts) {
    if (dtype == DType::f32) continue;  // its rows wait
    const auto reaches = [&](std::int64_t tokens, std::int64_t columns, std::string_view tile) {
      const TilePlan plan = plan_tiles({tokens, columns, dtype, scaling, false, 128}, kSms);
      EXPECT_TRUE(plan.variant->name.ends_with(tile)) << plan.variant->name << ", not " << tile;
    };
    reaches(17, 1024, "codes_n64_t64");
    reaches(65, 1024, "codes_n64_t128");
    reaches(17, 8704, "codes_n128_t64");
    reaches(65, 8704, "codes_n128_t128");
    reaches(130, 4608, "codes_n128");
    reaches(130, 8704, "codes_n192");
    if (scaling == Scaling::none) reaches(130, 13056, "codes_n256");
  }
}

}  // namespace
}  // namespace quire::cuda::sm90::fused_qkv_matmul
