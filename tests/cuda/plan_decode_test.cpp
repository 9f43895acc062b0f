// SPDX-License-Identifier: Apache-2.0
// Which decode kernel a problem gets: pure, so it needs no GPU.
#include "cuda/sm90/flash_attention/decode/plan_decode.h"

#include <set>
#include <utility>

#include "cuda/common/split_kv/split_schedule.h"
#include "cuda/llama_attention.h"
#include "gtest/gtest.h"

namespace quire::cuda::sm90::flash_attention {
namespace {

FlashAttentionProblem llama(std::int64_t new_tokens) {
  return test::llama_attention(
      {.tokens = 16 * new_tokens, .batch = 16, .max_new_tokens = new_tokens}, 16);
}

TEST(PlanDecodeTest, EveryVariantFitsTheMachine) {
  constexpr std::int64_t kSharedBytes = 227 * 1024;
  constexpr std::int64_t kSmall = 3072;  // barriers, work tiles, maxima
  std::set<std::string_view> names;
  for (const DecodeVariant& variant : kDecodeVariants) {
    const DecodeConfig& config = variant.config;
    EXPECT_TRUE(names.insert(variant.name).second) << variant.name;
    const std::int64_t ring = std::int64_t{config.stages} * config.stage_bytes();
    const std::int64_t queries =
        std::int64_t{config.work_tiles} * config.query_swizzle_columns() * config.rows * 128;
    const std::int64_t sums = std::int64_t{DecodeConfig::kWarps} * config.staged_rows() *
                              (config.warp_columns() + 4) * std::int64_t{sizeof(float)};
    // Two buffers of scores over some of the columns.
    const std::int64_t parts = config.column_warps == 1
                                   ? 0
                                   : std::int64_t{2 * DecodeConfig::kWarps} *
                                         DecodeConfig::kWarpKeys * config.warp_rows() * 4;
    EXPECT_LE(ring + queries + sums + parts + kSmall, kSharedBytes) << variant.name;
    // The warps of a set share the keys of a stage, or the columns of 16 keys.
    EXPECT_EQ(config.keys() * config.column_warps, 64) << variant.name;
    EXPECT_EQ(kBlockKeys % config.keys(), 0) << variant.name;
    EXPECT_EQ(config.swizzle_columns % config.column_warps, 0) << variant.name;
    // A stage always belongs to the same warps.
    EXPECT_EQ(config.stages % DecodeConfig::kSets, 0) << variant.name;
    EXPECT_EQ(config.lane_keys() * DecodeConfig::kLoadThreads, config.keys() * config.row_lanes())
        << variant.name;
  }
}

TEST(PlanDecodeTest, RowsHoldTheNewTokensOfASequence) {
  const auto kernel = [](std::int64_t new_tokens) {
    return plan_decode(llama(new_tokens), 132).variant->name;
  };
  EXPECT_EQ(kernel(0), "bf16_d128_r8");
  EXPECT_EQ(kernel(1), "bf16_d128_r8");
  EXPECT_EQ(kernel(2), "bf16_d128_r8");
  EXPECT_EQ(kernel(3), "bf16_d128_r16");
  EXPECT_EQ(kernel(8), "bf16_d128_r32");
  EXPECT_EQ(kernel(16), "bf16_d128_r32");
  EXPECT_EQ(plan_decode(llama(16), 132).tile_tokens, 8);
  EXPECT_EQ(plan_decode(llama(16), 132).schedule.max_tiles, 2);
}

TEST(PlanDecodeTest, HeadsTakeTheNarrowestRowsThatHoldThem) {
  const auto kernel = [](std::int64_t head_dim, DType dtype, std::int64_t new_tokens) {
    FlashAttentionProblem problem = llama(new_tokens);
    problem.head_dim = head_dim;
    problem.cache.row_format = RowFormat::uniform(dtype, static_cast<std::int32_t>(head_dim));
    EXPECT_EQ(refuse_decode_problem(problem), "");
    const DecodePlan plan = plan_decode(problem, 132);
    EXPECT_EQ(plan.tile_tokens, plan.variant->config.rows / 4);
    return plan.variant->name;
  };
  EXPECT_EQ(kernel(64, DType::bf16, 2), "bf16_d64_r8");
  EXPECT_EQ(kernel(64, DType::fp8_e4m3, 2), "fp8_d128_r8");
  EXPECT_EQ(kernel(72, DType::bf16, 2), "bf16_d128_r8");
  EXPECT_EQ(kernel(128, DType::bf16, 16), "bf16_d128_r32");
  EXPECT_EQ(kernel(136, DType::bf16, 1), "bf16_d256_r8");
  EXPECT_EQ(kernel(256, DType::bf16, 8), "bf16_d256_r8");
  EXPECT_EQ(kernel(256, DType::fp8_e4m3, 2), "fp8_d256_r8");
  EXPECT_EQ(kernel(264, DType::bf16, 1), "bf16_d512_r8");
  EXPECT_EQ(kernel(512, DType::bf16, 2), "bf16_d512_r8");
  EXPECT_EQ(kernel(512, DType::bf16, 3), "bf16_d512_r16");
  EXPECT_EQ(kernel(512, DType::bf16, 8), "bf16_d512_r32");
  EXPECT_EQ(kernel(512, DType::f16, 1), "f16_d512_r8");
  EXPECT_EQ(kernel(512, DType::fp8_e4m3, 16), "fp8_d512_r32");
}

// 64 heads over 4 KV heads of 128, lists of 16 blocks of 128 keys in pages of 64.
FlashAttentionProblem blocks_of(std::int64_t tokens) {
  FlashAttentionProblem problem = llama(1);
  problem.heads = 64;
  problem.cache.num_kv_heads = 4;
  problem.cache.page_size = 64;
  problem.ragged.tokens = tokens;
  problem.ragged.max_new_tokens = tokens;
  problem.max_key_blocks = 16;
  problem.key_block_size = 128;
  return problem;
}

TEST(PlanDecodeTest, ListsOfBlocksAreABatchOfTokensAndKvHeads) {
  const FlashAttentionProblem listed = listed_problem(blocks_of(500));
  EXPECT_EQ(listed.ragged.batch, 2000);
  EXPECT_EQ(listed.ragged.max_new_tokens, 1);
  EXPECT_EQ(listed.heads, 16);
  EXPECT_EQ(listed.cache.num_kv_heads, 1);
  EXPECT_EQ(refuse_decode_problem(blocks_of(500)), "");
  const DecodePlan plan = plan_decode(listed, 132);
  EXPECT_EQ(plan.variant->name, "bf16_d128_r16");
  EXPECT_EQ(plan.tile_tokens, 1);
  EXPECT_EQ(plan.work_lists.bits, 0);
  EXPECT_EQ(plan.schedule.blocks, 132);
  EXPECT_EQ(listed_problem(llama(2)), llama(2));
}

TEST(PlanDecodeTest, ListsThatAreNoPageTablesAreRefused) {
  const auto refusal = [](auto change) {
    FlashAttentionProblem problem = blocks_of(3);
    change(problem);
    return refuse_decode_problem(problem);
  };
  EXPECT_EQ(refusal([](auto& p) { p.key_block_size = 32; }),
            "blocks of 32 keys are not whole pages of 64");
  EXPECT_EQ(refusal([](auto& p) { p.mask.window = 100; }),
            "a mask within key_blocks that is not causal or full");
  EXPECT_EQ(refusal([](auto& p) { p.has_alibi = true; }), "ALiBi over key_blocks");
  EXPECT_EQ(refusal([](auto& p) { p.batch_invariant = true; }), "batch_invariant over key_blocks");
  EXPECT_EQ(refusal([](auto& p) { p.has_ragged_keys = true; }), "key_blocks without pages");
  EXPECT_EQ(refusal([](auto& p) { p.key_block_size = std::int64_t{1} << 26; }),
            "2^30 or more lists, or keys of a list");
  EXPECT_EQ(refusal([](auto& p) { p.heads = 256; }),
            "no decode kernel of head_dim 128 and 64 heads to a KV head");
}

TEST(PlanDecodeTest, WorkListsTakeNeighbouringHeadsAndNearlyAllMultiprocessors) {
  const auto bits = [](std::int64_t kv_heads, int num_sms) {
    FlashAttentionProblem problem = llama(1);
    problem.heads = 4 * kv_heads;
    problem.cache.num_kv_heads = kv_heads;
    const DecodePlan plan = plan_decode(problem, num_sms);
    EXPECT_EQ(plan.slots, plan.work_lists.slots << plan.work_lists.bits);
    EXPECT_EQ(plan.schedule.blocks, num_sms >> plan.work_lists.bits);
    return plan.work_lists.bits;
  };
  EXPECT_EQ(bits(8, 132), 3);
  EXPECT_EQ(bits(32, 132), 3);
  EXPECT_EQ(bits(12, 132), 2);
  EXPECT_EQ(bits(3, 132), 0);
  EXPECT_EQ(bits(8, 114), 3);
  EXPECT_EQ(bits(8, 78), 2);
}

TEST(PlanDecodeTest, EveryHeadIsOnOneWorkList) {
  const WorkLists work_lists{.bits = 2, .slots = 10};
  std::set<int> heads;
  for (int block = 0; block < 12; ++block) {
    EXPECT_EQ(work_lists.part(block) * 4 + work_lists.list(block), block);
    heads.insert(work_lists.kv_head(work_lists.list(block), work_lists.part(block)));
  }
  EXPECT_EQ(heads.size(), 12U);
  EXPECT_EQ(*heads.rbegin(), 11);
  EXPECT_EQ(work_lists.kv_head(3, 0), 3);  // beside head 2, which line 2 has
  EXPECT_EQ(work_lists.first_slot(3), 30);
}

TEST(PlanDecodeTest, UnboundedLengthsCountOnTheAverage) {
  FlashAttentionProblem problem = llama(1);
  problem.ragged.max_new_tokens = -1;
  EXPECT_EQ(refuse_decode_problem(problem), "");
  EXPECT_EQ(plan_decode(problem, 132).variant->name, "bf16_d128_r8");
  problem.ragged.tokens = 17 * problem.ragged.batch;
  EXPECT_NE(refuse_decode_problem(problem), "");
}

TEST(PlanDecodeTest, WorkspaceIsBoundedByThreadBlocks) {
  FlashAttentionProblem problem = llama(1);
  EXPECT_EQ(plan_decode(problem, 132).slots, 256);
  problem.cache.max_pages = 1 << 20;
  problem.ragged.batch = 4096;
  EXPECT_EQ(plan_decode(problem, 132).slots, 256);
  problem.batch_invariant = true;
  EXPECT_EQ(plan_decode(problem, 132).slots, 4096 * 8 * kMaxSplits);
}

// Eight and sixteen rows are added up alike, thirty-two are not.
TEST(PlanDecodeTest, InvariantSumsHaveOneOrder) {
  for (const auto& [head_dim, key_warps] : {std::pair{128, 8}, std::pair{512, 2}}) {
    for (std::int64_t new_tokens = 1; new_tokens <= 16; ++new_tokens) {
      FlashAttentionProblem problem = llama(new_tokens);
      problem.head_dim = head_dim;
      problem.batch_invariant = true;
      ASSERT_EQ(refuse_decode_problem(problem), "");
      EXPECT_EQ(plan_decode(problem, 132).variant->config.key_warps(), key_warps) << new_tokens;
    }
  }
}

// The bound on new tokens decides, not how many there happen to be.
TEST(PlanDecodeTest, InvariantChoicesFollowTheBoundAlone) {
  constexpr std::string_view kPrefill = "prefill";
  for (const std::int64_t bound : {-1, 1, 4, 16, 17, 4096}) {
    std::set<std::string_view> answers;
    for (const std::int64_t batch : {1, 7, 4096}) {
      for (const std::int64_t average : {1, 16, 100}) {
        FlashAttentionProblem problem = llama(1);
        problem.batch_invariant = true;
        problem.ragged = {
            .tokens = average * batch, .batch = batch, .max_new_tokens = bound, .max_keys = -1};
        const bool is_decode = refuse_decode_problem(problem).empty();
        answers.insert(is_decode ? plan_decode(problem, 132).variant->name : kPrefill);
      }
    }
    EXPECT_EQ(answers.size(), 1u) << bound;
    EXPECT_EQ(answers.contains(kPrefill), bound < 0 || bound > 16) << bound;
  }
}

TEST(PlanDecodeTest, ReadsVBesideK) {
  FlashAttentionProblem problem = llama(1);
  EXPECT_EQ(refuse_decode_problem(problem), "");
  problem.cache.values_match_keys = false;
  EXPECT_EQ(refuse_decode_problem(problem), "V's rows are not as wide and as far apart as K's");
}

TEST(PlanDecodeTest, SaysWhatItDoesNotTake) {
  const auto reason = [](auto change) {
    FlashAttentionProblem problem = llama(1);
    change(problem);
    return refuse_decode_problem(problem);
  };
  const auto with_rows = [](RowFormat format) {
    return [format](FlashAttentionProblem& problem) { problem.cache.row_format = format; };
  };
  const auto with_mask = [](const Mask& mask) {
    return [&mask](FlashAttentionProblem& problem) { problem.mask = mask.summary(); };
  };
  const Mask tree = Mask::tree({});
  EXPECT_EQ(reason([](FlashAttentionProblem&) {}), "");
  EXPECT_EQ(reason(with_rows(RowFormat::uniform(DType::fp8_e4m3, 128))), "");
  EXPECT_EQ(reason(with_rows(RowFormat::uniform(DType::f16, 128))), "");
  EXPECT_NE(reason(with_rows(RowFormat::scaled(DType::fp8_e4m3, 128, 128))), "");
  EXPECT_NE(reason(with_rows(RowFormat::uniform(DType::f32, 128))), "");
  EXPECT_NE(reason([](FlashAttentionProblem& problem) { problem.q_dtype = DType::f32; }), "");
  EXPECT_NE(reason([](FlashAttentionProblem& problem) { problem.q_dtype = DType::f16; }), "");
  EXPECT_NE(reason([](FlashAttentionProblem& problem) { problem.cache.is_mla = true; }), "");
  EXPECT_NE(reason([](FlashAttentionProblem& problem) { problem.head_dim = 520; }), "");
  const auto wide = [](std::int64_t head_dim, std::int64_t group, std::int64_t new_tokens) {
    return [head_dim, group, new_tokens](FlashAttentionProblem& problem) {
      problem.head_dim = head_dim;
      problem.heads = 8 * group;
      problem.ragged.max_new_tokens = new_tokens;
    };
  };
  EXPECT_EQ(reason(wide(256, 8, 4)), "");
  EXPECT_NE(reason(wide(256, 8, 5)), "");
  EXPECT_NE(reason(wide(256, 9, 1)), "");
  EXPECT_EQ(reason(wide(512, 8, 16)), "");
  EXPECT_EQ(reason(wide(512, 32, 4)), "");
  EXPECT_NE(reason(wide(512, 32, 5)), "");
  EXPECT_NE(reason(wide(512, 33, 1)), "");
  EXPECT_NE(reason([](FlashAttentionProblem& problem) { problem.heads = 8 * 33; }), "");
  EXPECT_NE(reason([](FlashAttentionProblem& problem) { problem.alignment = 8; }), "");
  EXPECT_EQ(reason(with_mask(Mask::causal() & tree)), "");
  EXPECT_NE(reason(with_mask(Mask::causal() | tree)), "");
  EXPECT_NE(reason(with_mask(tree & tree)), "");
  const Mask own = Mask::key_intervals({}, {});
  EXPECT_EQ(reason(with_mask(Mask::causal() & own)), "");
  EXPECT_EQ(reason(with_mask(own & Mask::sliding_window(9) & tree)), "");
  EXPECT_EQ(reason(with_mask(own & own)), "the mask joins more than one set of key intervals");
  EXPECT_EQ(reason(with_mask(own | Mask::causal())),
            "the mask shows more than one interval of keys");
  EXPECT_NE(reason([](FlashAttentionProblem& problem) { problem.ragged.max_new_tokens = 17; }), "");
}

TEST(PlanDecodeTest, TakesOneScaleForAKvHeadOfE4m3) {
  FlashAttentionProblem problem = llama(1);
  problem.has_head_scales = true;
  problem.cache.row_format = RowFormat::scaled(DType::fp8_e4m3, 128, 128);
  EXPECT_EQ(refuse_decode_problem(problem), "");
  problem.cache.row_format = RowFormat::scaled(DType::i8, 128, 128);
  EXPECT_NE(refuse_decode_problem(problem), "");
}

// A tree's bits come from its leaf; its interval is that of the parts beside it.
TEST(PlanDecodeTest, ATreeStandsBesideAnInterval) {
  std::uint8_t bits[6] = {};
  const TensorView view = TensorView::contiguous(bits, DType::u8, {2, 3});
  const auto tree_of = [](const Mask& mask) { return tree_mask(mask, mask.summary()); };
  const TreeMask mask = tree_of(Mask::causal() & Mask::tree(view));
  EXPECT_EQ(mask.visible.ahead, 0);
  EXPECT_EQ(mask.tree.bits, bits);
  EXPECT_EQ(mask.tree.columns, 3);
  EXPECT_EQ(tree_of(Mask::causal()).tree.bits, nullptr);
  EXPECT_EQ(tree_of(Mask::tree(view)).visible.ahead, VisibleRange::kUnbounded);
  EXPECT_EQ(refuse_tree_mask(Mask::tree(view).summary()), "");
  EXPECT_NE(refuse_tree_mask((Mask::tree(view) | Mask::chunked(4)).summary()), "");
  EXPECT_NE(refuse_tree_mask((Mask::tree(view) & Mask::tree(view)).summary()), "");
}

TEST(PlanDecodeTest, KeyIntervalsStandBesideWhatThePositionsShow) {
  std::int32_t bounds[4] = {};
  TensorView begin = TensorView::contiguous(bounds, DType::i32, {2, 2});
  begin.rank = 1;
  TensorView end = begin;
  end.data = bounds + 1;
  const Mask mask = Mask::causal() & Mask::key_intervals(begin, end) & Mask::sliding_window(5);
  const TreeMask found = tree_mask(mask, mask.summary());
  EXPECT_EQ(found.visible.ahead, 0);
  EXPECT_EQ(found.visible.window, 5);
  EXPECT_EQ(found.intervals.begin, bounds);
  EXPECT_EQ(found.intervals.end, bounds + 1);
  EXPECT_EQ(found.intervals.end_stride, 2);
  EXPECT_FALSE(tree_mask(Mask::causal(), Mask::causal().summary()).intervals.are_given());
}

}  // namespace
}  // namespace quire::cuda::sm90::flash_attention
