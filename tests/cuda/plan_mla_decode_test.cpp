// SPDX-License-Identifier: Apache-2.0
// Which attention kernel an mla_decode gets, and how its work is cut: pure, so it needs no GPU.
#include <set>
#include <string_view>
#include <vector>

#include "cuda/sm90/mla_decode/params.h"
#include "cuda/sm90/mla_decode/plan_decode.h"
#include "gtest/gtest.h"

namespace quire::cuda::sm90::mla_decode {
namespace {

constexpr int kSms = 132;

MlaDecodeProblem absorbed(std::int64_t heads, std::int64_t batch, std::int64_t new_tokens) {
  MlaDecodeProblem problem;
  problem.ragged = {.tokens = batch * new_tokens, .batch = batch, .max_new_tokens = new_tokens};
  problem.cache.row_format = RowFormat::uniform(DType::bf16, 576);
  problem.cache.num_pages = 64;
  problem.cache.page_size = 64;
  problem.cache.num_kv_heads = 1;
  problem.cache.is_mla = true;
  problem.heads = heads;
  problem.latent_dim = 512;
  problem.rope_dim = 64;
  problem.value_dim = 512;
  problem.mask = Mask::causal().summary();
  problem.finishes_rows = false;
  problem.alignment = 128;
  return problem;
}

TEST(PlanMlaDecodeTest, VariantsAreOrderedByTheirRows) {
  std::set<std::string_view> names;
  const MlaDecodeVariant* before = nullptr;
  for (const MlaDecodeVariant& variant : kMlaDecodeVariants) {
    EXPECT_TRUE(names.insert(variant.name).second) << variant.name;
    if (before != nullptr && before->latents == variant.latents) {
      const bool take_others =
          (before->taken == TakenRows::without_scales && variant.taken == TakenRows::with_scales) ||
          before->rounds_products != variant.rounds_products;
      EXPECT_LT(before->rows, variant.rows + (take_others ? 1 : 0)) << variant.name;
    }
    before = &variant;
  }
}

TEST(PlanMlaDecodeTest, KernelsForFp8WgmmaFitTheMachine) {
  constexpr int kStartRegisters = 128;  // of 512 threads
  for (const SwapAbConfig& config :
       {MlaDecodeFp8BlockR64::kConfig, MlaDecodeFp8BlockR128::kConfig}) {
    EXPECT_LE(config.load_registers + config.score_registers + 2 * config.value_registers,
              4 * kStartRegisters);
    EXPECT_EQ(config.unit_bytes() % 128, 0);
    EXPECT_GT(config.units, SwapAbConfig::kTileUnits);  // some are on their way
  }
  EXPECT_EQ(MlaDecodeFp8BlockR128::kRows,
            MlaDecodeFp8BlockR128::kCluster * MlaDecodeFp8BlockR128::kConfig.rows);
}

TEST(PlanMlaDecodeTest, KernelsForSwapAbFitTheMachine) {
  constexpr int kStartRegisters = 96;  // of 640 threads
  constexpr std::int64_t kSharedBytes = 227 * 1024;
  constexpr std::int64_t kSmall = 5 * 1024;  // barriers, work tiles, references, scales of rows
  constexpr std::int64_t kSwizzleColumn = 16 * 128;
  for (const SwapAbConfig& config :
       {MlaDecodeBf16R16::kConfig, MlaDecodeFp8R16::kConfig, MlaDecodeFp8BlockR16::kConfig}) {
    const std::int64_t swizzle_columns = 9 + 2 * config.scale_groups();  // of q and of weights
    EXPECT_LE(swizzle_columns * kSwizzleColumn + config.units * config.unit_bytes() + kSmall,
              kSharedBytes);
    EXPECT_LE(config.load_registers + 2 * (config.score_registers + config.value_registers),
              5 * kStartRegisters);
    EXPECT_EQ(config.unit_bytes() % 128, 0);
    EXPECT_GE(config.units, 2 * SwapAbConfig::kTileUnits);
  }
  // Eight rows in different banks: by swizzling, which begins anew there, or because they stand an odd number of 16 bytes
  // apart.
  EXPECT_EQ(MlaDecodeBf16R16::kConfig.unit_bytes() % 1024, 0);
  EXPECT_EQ(MlaDecodeFp8R16::kConfig.unit_bytes() % 1024, 0);
  EXPECT_EQ(MlaDecodeFp8BlockR16::kConfig.unit_bytes() / SwapAbConfig::kUnitKeys % 32, 16);
}

TEST(PlanMlaDecodeTest, RowsHoldTheHeadsOfTheNewTokens) {
  const auto kernel = [](std::int64_t heads, std::int64_t new_tokens) {
    return plan_mla_decode(absorbed(heads, 4, new_tokens), kSms).variant->name;
  };
  EXPECT_EQ(kernel(8, 2), "bf16_r16");
  EXPECT_EQ(kernel(16, 1), "bf16_r16");
  EXPECT_EQ(kernel(16, 2), "bf16_r64");
  EXPECT_EQ(kernel(16, 4), "bf16_r64");
  EXPECT_EQ(kernel(16, 5), "bf16_r128");
  EXPECT_EQ(kernel(64, 1), "bf16_r64");
  EXPECT_EQ(kernel(64, 2), "bf16_r128");
  EXPECT_EQ(kernel(96, 1), "bf16_r128");
  EXPECT_EQ(kernel(128, 2), "bf16_r256");
  EXPECT_EQ(kernel(64, 4), "bf16_r256");
  EXPECT_EQ(kernel(128, 3), "bf16_r128");  // two tokens and one would leave two of four blocks idle
  EXPECT_EQ(plan_mla_decode(absorbed(16, 4, 8), kSms).tile_tokens, 8);
  EXPECT_EQ(plan_mla_decode(absorbed(128, 4, 7), kSms).schedule.max_tiles, 7);
  EXPECT_EQ(plan_mla_decode(absorbed(128, 4, 8), kSms).schedule.max_tiles, 4);
}

TEST(PlanMlaDecodeTest, RowsOfE4m3HaveKernelsOfTheirOwn) {
  for (const RowFormat& format : {RowFormat::uniform(DType::fp8_e4m3, 576),
                                  RowFormat::mla_fp8_token(), RowFormat::mla_fp8_block()}) {
    MlaDecodeProblem problem = absorbed(16, 4, 1);
    problem.cache.row_format = format;
    EXPECT_EQ(refuse_mla_decode_problem(problem), "") << format.describe();
    const bool has_scales = format == RowFormat::mla_fp8_block();
    EXPECT_EQ(plan_mla_decode(problem, kSms).variant->name,
              has_scales ? "fp8_block_r16" : "fp8_r16")
        << format.describe();
    problem.heads = 64;
    EXPECT_EQ(plan_mla_decode(problem, kSms).variant->name,
              has_scales ? "fp8_block_r64" : "fp8_code_pairs_r64")
        << format.describe();
    problem.heads = 128;
    EXPECT_EQ(plan_mla_decode(problem, kSms).variant->name,
              has_scales ? "fp8_block_r128" : "fp8_code_pairs_r128")
        << format.describe();
  }
}

TEST(PlanMlaDecodeTest, ProductsAreRoundedForManyRowsOfThoseWhoAllowIt) {
  for (const RowFormat& format : {RowFormat::uniform(DType::fp8_e4m3, 576),
                                  RowFormat::mla_fp8_token(), RowFormat::mla_fp8_block()}) {
    MlaDecodeProblem problem = absorbed(16, 4, 1);
    problem.cache.row_format = format;
    const std::string_view few = plan_mla_decode(problem, kSms).variant->name;
    problem.allow_fp8_products = true;
    EXPECT_EQ(plan_mla_decode(problem, kSms).variant->name, few) << format.describe();
    problem.heads = 64;
    EXPECT_EQ(plan_mla_decode(problem, kSms).variant->name, "fp8_codes_r64") << format.describe();
    problem.heads = 128;
    EXPECT_EQ(plan_mla_decode(problem, kSms).variant->name, "fp8_codes_r128") << format.describe();
    problem.batch_invariant = true;
    EXPECT_EQ(plan_mla_decode(problem, kSms).variant->name, "fp8_codes_r128") << format.describe();
  }
  MlaDecodeProblem bf16 = absorbed(64, 4, 1);
  bf16.allow_fp8_products = true;
  EXPECT_EQ(plan_mla_decode(bf16, kSms).variant->name, "bf16_r64");
}

TEST(PlanMlaDecodeTest, MultiprocessorsAreLeftOnlyWhereWorkTilesComeOutEven) {
  const auto leaves_room = [](std::int64_t heads, std::int64_t batch) {
    return plan_mla_decode(absorbed(heads, batch, 1), kSms).leaves_room;
  };
  EXPECT_TRUE(leaves_room(16, 128));
  EXPECT_TRUE(leaves_room(8, 256));
  EXPECT_FALSE(leaves_room(16, 64));   // two splits of each work tile
  EXPECT_FALSE(leaves_room(16, 132));  // none left
  EXPECT_TRUE(leaves_room(128, 64));
  EXPECT_FALSE(leaves_room(128, 16));
}

TEST(PlanMlaDecodeTest, OrderOfSumsIsTheHeadsAlone) {
  MlaDecodeProblem problem = absorbed(16, 4, 1);
  problem.batch_invariant = true;
  const std::string_view one = plan_mla_decode(problem, kSms).variant->name;
  problem.ragged.max_new_tokens = 8;
  EXPECT_EQ(plan_mla_decode(problem, kSms).variant->name, one);
  problem.heads = 128;  // idle blocks, where sequences have one token
  EXPECT_EQ(plan_mla_decode(problem, kSms).variant->name, "bf16_r128");
}

TEST(PlanMlaDecodeTest, ClustersComeOutEvenWithTheWorkTilesWhereNearlyAllDo) {
  const auto clusters = [](std::int64_t batch) {
    return plan_mla_decode(absorbed(128, batch, 1), kSms).schedule.blocks;
  };
  EXPECT_EQ(clusters(1), 66);
  EXPECT_EQ(clusters(16), 64);  // four each
  EXPECT_EQ(clusters(64), 64);
  EXPECT_EQ(clusters(128), 64);  // two work tiles each
  EXPECT_EQ(clusters(50), 66);   // 50 would leave 16 idle
  EXPECT_EQ(clusters(0), 66);
}

TEST(PlanMlaDecodeTest, PartsHaveTwoTilesOrMoreAndCoverAll) {
  for (const int blocks : {1, 2, 33, 66}) {
    for (int tiles = 0; tiles < 300; ++tiles) {
      const WorkCuts cuts = cut_parts({.blocks = blocks}, tiles);
      EXPECT_LE(cuts.parts, blocks);
      EXPECT_EQ(cuts.at(0), 0);
      EXPECT_EQ(cuts.at(cuts.parts), tiles > 0 ? tiles : cuts.length);
      for (int part = 0; part < cuts.parts && tiles > 1; ++part) {
        EXPECT_GE(cuts.at(part + 1) - cuts.at(part), 2) << tiles << " tiles, part " << part;
        EXPECT_EQ(cuts.first_from(cuts.at(part)), part);
      }
    }
  }
}

// Every part of batches of ragged lengths, some of them empty and some with several work tiles a sequence.
TEST(PlanMlaDecodeTest, FirstSplitIsTheOneThatTheWalkBeginsWith) {
  const std::vector<std::uint32_t> lengths = {0, 7000, 64, 63, 1, 0, 300, 2500, 65};
  const std::vector<std::uint32_t> tokens = {1, 3, 0, 8, 1, 0, 2, 5, 1};
  std::vector<std::uint32_t> offsets = {0};
  for (const std::uint32_t count : tokens) offsets.push_back(offsets.back() + count);
  const DecodeBatch batch{.row_offsets = offsets.data(),
                          .cache_lengths = lengths.data(),
                          .size = static_cast<int>(lengths.size()),
                          .kv_heads = 1,
                          .group = 16,
                          .tile_tokens = 2,
                          .visible = {.ahead = 0}};
  for (const int blocks : {1, 3, 16, 66, 132}) {
    const SplitSchedule schedule{.blocks = blocks, .max_tiles = 4};
    std::vector<WorkPlace> places;  // of every tile of the work list
    for (int sequence = 0; sequence < batch.size; ++sequence) {
      const SequenceWork work = sequence_work(batch, sequence);
      const auto begin = static_cast<int>(places.size());
      const WorkPlace place{.sequence = sequence, .begin = begin, .work = work};
      places.insert(places.end(), static_cast<std::size_t>(work.cost(schedule)), place);
    }
    const WorkCuts cuts = cut_parts(schedule, static_cast<int>(places.size()));
    WorkSplit first;
    EXPECT_FALSE(first_split(schedule, cuts, {}, cuts.parts, first));
    for (int part = 0; part < cuts.parts; ++part) {
      const WorkPlace& place = places[static_cast<std::size_t>(cuts.at(part))];
      WorkSplit walked;
      WorkWalk walk(batch, schedule, cuts, place, part);
      ASSERT_TRUE(walk.next(walked));
      ASSERT_TRUE(first_split(schedule, cuts, place, part, first));
      EXPECT_EQ(walk.sequence(), place.sequence);
      EXPECT_EQ(first.begin, walked.begin) << "part " << part << " of " << cuts.parts;
      EXPECT_EQ(first.end, walked.end) << "part " << part << " of " << cuts.parts;
      EXPECT_EQ(first.tile, walked.tile);
      EXPECT_EQ(first.kv_head, walked.kv_head);
      EXPECT_EQ(first.slot, walked.slot);
    }
  }
}

TEST(PlanMlaDecodeTest, SaysWhyNot) {
  const auto reason = [](const auto& change) {
    MlaDecodeProblem problem = absorbed(16, 4, 1);
    change(problem);
    return refuse_mla_decode_problem(problem);
  };
  EXPECT_EQ(reason([](auto&) {}), "");
  EXPECT_EQ(reason([](auto& p) { p.latent_dim = 256; }),
            "rows are not of 512 latent and 64 rope columns");
  EXPECT_EQ(reason([](auto& p) { p.q_dtype = DType::f16; }), "q and out are not both bf16");
  EXPECT_EQ(reason([](auto& p) { p.nope_dim = 128; }), "");
  EXPECT_EQ(reason([](auto& p) { p.nope_dim = 64; }), "heads are not of a multiple of 128 columns");
  EXPECT_EQ(reason([](auto& p) { p.finishes_rows = true; }), "an absorbed q to be rotated");
  EXPECT_EQ(reason([](auto& p) { p.heads = 129; }), "more than 128 heads");
  EXPECT_EQ(reason([](auto& p) { p.cache.page_size = 8; }),
            "pages are not of a multiple of 16 tokens");
  EXPECT_EQ(reason([](auto& p) { p.alignment = 8; }), "rows are not aligned to 16 bytes");
  EXPECT_NE(reason([](auto& p) { p.mask = Mask::tree({}).summary(); }), "");
  EXPECT_EQ(reason([](auto& p) { p.mask = (Mask() & Mask::key_intervals({}, {})).summary(); }),
            "the mask has key intervals");
}

}  // namespace
}  // namespace quire::cuda::sm90::mla_decode
