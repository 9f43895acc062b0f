// SPDX-License-Identifier: Apache-2.0
// Which tile kernel a projection gets: pure, so it needs no GPU.
#include "cuda/hopper/fused_qkv_matmul/plan_tiles.h"

#include <set>
#include <span>
#include <vector>

#include "core/tile_simulator.h"
#include "cuda/hopper/tile/row_order.h"
#include "gtest/gtest.h"

namespace quire::cuda::hopper {
namespace {

constexpr int kSms = 132;

TEST(PlanTilesTest, EveryVariantFitsTheMachine) {
  constexpr std::int64_t kSharedBytes = 228 * 1024;  // of a multiprocessor
  constexpr std::int64_t kReserved = 1024;           // of them for every block
  for (const TileVariant& variant : kTileVariants) {
    const TileConfig& config = variant.config;
    const std::int64_t ring =
        std::int64_t{config.stages} * ((config.kept_tokens + config.tile_n) * 128 + 16);
    const std::int64_t offsets = 2 * (std::int64_t{config.tokens()} * 8 + 16);
    EXPECT_LE(config.blocks_per_sm * (ring + offsets + kReserved), kSharedBytes) << variant.name;
    EXPECT_EQ(config.tile_n % kGroupRows, 0) << variant.name;
    // A sharer's rows of x begin on an atom of 8 rows.
    EXPECT_EQ(config.kept_tokens % (8 * config.token_sharers()), 0) << variant.name;
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
  for (const DType dtype : {DType::bf16, DType::f16, DType::fp8_e4m3}) {
    for (const std::int64_t tokens : {1, 7, 8, 16, 17, 64, 65, 128, 129, 511, 2048, 100000}) {
      for (const std::int64_t columns : {32, 96, 2112, 6144, 10240}) {
        const TilePlan plan = plan_tiles({tokens, columns, dtype}, kSms);
        ASSERT_NE(plan.variant, nullptr);
        const TileConfig& config = plan.variant->config;
        EXPECT_GE(plan.grid.rows * std::int64_t{config.tokens()} * config.weight_sharers(), tokens);
        EXPECT_GE(plan.grid.columns * std::int64_t{config.tile_n} * config.token_sharers(),
                  columns);
        const std::int64_t fetched = std::int64_t{plan.box_tokens} * config.token_sharers();
        EXPECT_GE(fetched, std::min<std::int64_t>(tokens, config.kept_tokens));
        EXPECT_LE(fetched, config.kept_tokens);
        EXPECT_EQ(plan.box_tokens % 8, 0);
        EXPECT_GT(plan.blocks, 0);
        EXPECT_EQ(plan.blocks % config.cluster, 0);
        EXPECT_LE(plan.blocks, kSms * config.blocks_per_sm);
      }
    }
  }
}

TEST(PlanTilesTest, FewTokensReadTheWeightsOnce) {
  for (const std::int64_t tokens : {1, 16, 64, 128}) {
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
  EXPECT_EQ(name(512, 6144), "bf16_n192");
  EXPECT_EQ(name(512, 10240), "bf16_n160");
  EXPECT_EQ(name(8192, 6144), "bf16_n256");
}

// The copy engine, simulated, leaves weight row 8c + 2s + e where a thread of quad c looks for its
// column pair (s, e).
TEST(RowOrderTest, AThreadOwnsEightNeighbouringColumns) {
  constexpr int kRows = 64;
  constexpr int kColumns = 64;
  std::vector<std::uint16_t> weight(kRows * kColumns);
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<std::uint16_t>(i);
  TileDescriptor tile = quad_ordered_tile(DType::bf16, kRows, kColumns, kColumns * 2, 2);
  tile.swizzle = Swizzle::none;  // the order of rows, not of bytes within them
  const auto bytes = std::as_bytes(std::span(weight));
  const std::vector<std::byte> shared =
      quire::testing::TileSimulator(bytes, bytes.data()).copy(tile, {0, 0, 0, 0, 0});
  const auto* rows = reinterpret_cast<const std::uint16_t*>(shared.data());
  for (int place = 0; place < kRows; ++place) {
    const int s = place % 32 / 8;
    const int c = place % 8 / 2;
    const int row = place / 32 * 32 + 8 * c + 2 * s + place % 2;
    EXPECT_EQ(rows[place * kColumns], row * kColumns) << "place " << place;
  }
}

}  // namespace
}  // namespace quire::cuda::hopper
