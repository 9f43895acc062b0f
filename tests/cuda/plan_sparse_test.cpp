// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "cuda/sm90/sparse_mla/plan_sparse.h"

namespace quire::cuda::sm90::sparse_mla {
namespace {

constexpr int kSms = 132;

SparseMlaProblem decode_problem(std::int64_t tokens, std::int64_t heads) {
  return {.ragged = {.tokens = tokens, .batch = tokens},
          .cache = {.row_format = RowFormat::mla_fp8_block(), .page_size = 64, .max_pages = 1024},
          .heads = heads,
          .latent_dim = 512,
          .rope_dim = 64,
          .top_k = 2048,
          .q_dtype = DType::bf16,
          .alignment = 16};
}

TEST(PlanSparse, ManyTokensAreNotCut) {
  const SparsePlan plan = plan_sparse(decode_problem(128, 64), kSms);
  EXPECT_EQ(plan.work.splits, 1);
  EXPECT_EQ(plan.work.head_tiles, 1);
  EXPECT_EQ(plan.blocks, 128);
  EXPECT_EQ(plan.variant->name, "fp8");
}

// A prompt of `tokens` behind as many cached ones.
SparseMlaProblem prompt_problem(std::int64_t tokens, std::int64_t heads) {
  SparseMlaProblem problem = decode_problem(tokens, heads);
  problem.ragged = {.tokens = tokens, .batch = 1, .max_new_tokens = tokens, .max_keys = 2 * tokens};
  return problem;
}

TEST(PlanSparse, PromptsDecodeTheirRowsFirst) {
  for (const std::int64_t heads : {64, 128}) {
    const SparsePlan plan = plan_sparse(prompt_problem(4000, heads), kSms);
    EXPECT_EQ(plan.variant->name, "bf16");
    EXPECT_EQ(plan.decoded_pages(), 125);
    EXPECT_EQ(plan.decoded[0].bytes(), 8000 * 576 * 2);
  }
}

TEST(PlanSparse, RoomOfTheTableIsTheBoundWhereKeysAreUnknown) {
  SparseMlaProblem problem = prompt_problem(4000, 128);
  problem.ragged.max_keys = -1;
  EXPECT_EQ(plan_sparse(problem, kSms).decoded[0].columns, 1024);
}

TEST(PlanSparse, RowsAreDecodedByTheKernelWhereThatIsNotWorthIt) {
  std::vector<SparseMlaProblem> others(6, prompt_problem(4000, 128));
  others[0].batch_invariant = true;
  others[1].ragged.max_keys = -1,
  others[1].cache.max_pages = 1 << 14;  // a table with room for 1 M keys
  others[2].ragged.batch = 64;          // more than a quarter of a gigabyte
  others[3].ragged.tokens = 4;          // few tokens
  others[4].heads = 32;                 // kernels of their own
  others[5].extra_k = 64, others[5].extra_format = RowFormat::mla_fp8_block();
  others[5].extra_page_size = 64, others[5].extra_max_rows = 1 << 20;  // of the second stream alone
  for (const SparseMlaProblem& problem : others) {
    const SparsePlan plan = plan_sparse(problem, kSms);
    EXPECT_EQ(plan.decoded_pages(), 0);
    EXPECT_EQ(plan.variant->rows, RowKind::fp8);
  }
}

TEST(PlanSparse, FewHeadsTakeANarrowKernel) {
  EXPECT_EQ(plan_sparse(decode_problem(128, 8), kSms).variant->name, "fp8_heads16");
  EXPECT_EQ(plan_sparse(decode_problem(128, 16), kSms).variant->name, "fp8_heads16");
  EXPECT_EQ(plan_sparse(decode_problem(128, 17), kSms).variant->name, "fp8_heads32");
}

TEST(PlanSparse, TwoBlocksShareTheRowsOfUpTo128Heads) {
  for (const std::int64_t heads : {65, 127, 128}) {
    const SparsePlan plan = plan_sparse(decode_problem(128, heads), kSms);
    EXPECT_EQ(plan.variant->name, "fp8_pair");
    EXPECT_EQ(plan.work.head_tiles, 2);
  }
  EXPECT_EQ(plan_sparse(decode_problem(128, 129), kSms).variant->name, "fp8");
  EXPECT_EQ(plan_sparse(decode_problem(128, 129), kSms).work.head_tiles, 3);
  // Whole clusters, whatever the number of multiprocessors.
  EXPECT_EQ(plan_sparse(decode_problem(128, 128), 131).blocks, 130);
  EXPECT_EQ(plan_sparse(decode_problem(1, 128), 131).blocks % 2, 0);
}

TEST(PlanSparse, BatchInvariantNeverCutsATokensTiles) {
  for (const std::int64_t tokens : {1, 2, 5, 64, 65, 133, 200}) {
    for (const std::int64_t heads : {1, 16, 64, 128}) {
      SparseMlaProblem problem = decode_problem(tokens, heads);
      problem.batch_invariant = true;
      EXPECT_EQ(plan_sparse(problem, kSms).work.splits, 1);
      EXPECT_FALSE(plan_sparse(problem, kSms).work.alternates);
    }
  }
}

TEST(PlanSparse, FewTokensAreCutIntoSplitsThatCoverAllTiles) {
  for (const std::int64_t tokens : {1, 2, 5, 31, 64, 65}) {
    for (const std::int64_t heads : {1, 16, 64, 128}) {
      const SparsePlan plan = plan_sparse(decode_problem(tokens, heads), kSms);
      const int tiles = 2048 / plan.variant->keys;
      EXPECT_GE(plan.work.splits * plan.work.split_tiles, tiles);
      EXPECT_LT((plan.work.splits - 1) * plan.work.split_tiles, tiles);
      EXPECT_TRUE(plan.work.splits == 1 || plan.work.work_tiles() <= kSms);
    }
  }
  EXPECT_GT(plan_sparse(decode_problem(1, 128), kSms).work.splits, 8);
}

TEST(PlanSparse, TokensThatAreLeftWhenAllHadAsManyAreCut) {
  for (const std::int64_t heads : {16, 33, 64, 128}) {
    const SparsePlan plan = plan_sparse(decode_problem(4096, heads), kSms);
    const SparseWork& work = plan.work;
    EXPECT_EQ(plan.blocks, kSms);
    EXPECT_EQ(work.cut(), 4096 * work.head_tiles % kSms);
    EXPECT_EQ(work.whole % kSms, 0);
    EXPECT_GT(work.splits, 8);
    EXPECT_LE(work.cut() * work.splits, kSms);
    EXPECT_EQ(work.work_tiles(), work.whole + work.cut() * work.splits);
    EXPECT_GE(work.splits * work.split_tiles, work.tiles);
    EXPECT_LT((work.splits - 1) * work.split_tiles, work.tiles);
  }
  // Too many are left for two splits each, or none.
  EXPECT_EQ(plan_sparse(decode_problem(2 * kSms - 1, 64), kSms).work.cut(), 0);
  EXPECT_EQ(plan_sparse(decode_problem(2 * kSms, 64), kSms).work.cut(), 0);
}

TEST(PlanSparse, TilesOfTheSecondStreamFollowTheFirst) {
  SparseMlaProblem problem = decode_problem(200, 64);
  problem.top_k = 65;
  problem.extra_k = 1;
  problem.extra_format = RowFormat::mla_fp8_token();
  EXPECT_EQ(refuse_sparse_problem(problem), "");
  const SparsePlan plan = plan_sparse(problem, kSms);
  ASSERT_EQ(plan.variant->keys, 32);
  EXPECT_EQ(plan.work.first_tiles, 3);
  EXPECT_EQ(plan.work.split_tiles, 4);
}

TEST(PlanSparse, BothStreamsOfAPromptAreDecoded) {
  SparseMlaProblem problem = prompt_problem(4000, 64);
  problem.top_k = 128;
  problem.extra_k = 512;
  problem.extra_format = problem.cache.row_format;
  problem.extra_tokens_per_row = 4;
  problem.extra_page_size = 16;
  problem.extra_max_rows = 2000;
  const SparsePlan plan = plan_sparse(problem, kSms);
  EXPECT_EQ(plan.variant->name, "bf16");
  EXPECT_EQ(plan.decoded[0].bytes(), 8000 * 576 * 2);
  EXPECT_EQ(plan.decoded[1].bytes(), 2000 * 576 * 2);
  EXPECT_EQ(plan.decoded[1].tokens_per_row, 4);
  EXPECT_EQ(plan.decoded_pages(), 125 + 125);
  problem.extra_max_rows = 0;  // a table without room
  EXPECT_EQ(plan_sparse(problem, kSms).decoded_pages(), 0);
}

// Rows of 512 columns that are key and value.
SparseMlaProblem whole_problem(std::int64_t tokens, std::int64_t heads,
                               const RowFormat& format = RowFormat::mla_fp8_e8m0()) {
  SparseMlaProblem problem = decode_problem(tokens, heads);
  problem.cache.row_format = format;
  problem.rope_dim = 0;
  problem.top_k = 512;
  return problem;
}

TEST(PlanSparse, WholeRowsHaveKernelsOfTheirOwn) {
  EXPECT_EQ(refuse_sparse_problem(whole_problem(128, 64)), "");
  for (const std::int64_t heads : {1, 16, 64}) {
    EXPECT_EQ(plan_sparse(whole_problem(128, heads), kSms).variant->name, "whole_fp8");
  }
  EXPECT_EQ(plan_sparse(whole_problem(128, 128), kSms).variant->name, "whole_fp8_pair");
  EXPECT_EQ(plan_sparse(whole_problem(128, 129), kSms).variant->name, "whole_fp8");
  const RowFormat bf16 = RowFormat::uniform(DType::bf16, 512);
  EXPECT_EQ(refuse_sparse_problem(whole_problem(128, 64, bf16)), "");
  EXPECT_EQ(plan_sparse(whole_problem(128, 128, bf16), kSms).variant->name, "whole_bf16");
  EXPECT_EQ(plan_sparse(decode_problem(128, 64), kSms).variant->shape, RowShape::latent_rope);
}

TEST(PlanSparse, WholeRowsOfPromptsAreDecodedFirst) {
  SparseMlaProblem problem = whole_problem(4000, 64);
  problem.ragged = {.tokens = 4000, .batch = 1, .max_new_tokens = 4000, .max_keys = 8000};
  const SparsePlan plan = plan_sparse(problem, kSms);
  EXPECT_EQ(plan.variant->name, "whole_bf16");
  EXPECT_EQ(plan.decoded[0].bytes(), 8000 * 512 * 2);
}

TEST(PlanSparse, WindowAndCompressedRowsAreTwoStreams) {
  SparseMlaProblem problem = whole_problem(64, 64);
  problem.top_k = 128;
  problem.extra_k = 512;
  problem.extra_format = problem.cache.row_format;
  problem.extra_tokens_per_row = 4;
  EXPECT_EQ(refuse_sparse_problem(problem), "");
  const SparsePlan plan = plan_sparse(problem, kSms);
  EXPECT_EQ(plan.variant->name, "whole_fp8");
  EXPECT_EQ(plan.work.first_tiles, 128 / plan.variant->keys);
  EXPECT_EQ(plan.work.tiles, (128 + 512) / plan.variant->keys);
  problem.extra_format = RowFormat::uniform(DType::bf16, 512);
  EXPECT_NE(refuse_sparse_problem(problem), "");
}

TEST(PlanSparse, SaysWhichWholeRowsItDoesNotTake) {
  for (const RowFormat& format :
       {RowFormat::uniform(DType::f16, 512), RowFormat::uniform(DType::fp8_e4m3, 512),
        RowFormat::mla_fp8_e8m0(448, 64, 32), RowFormat::mla_fp8_e8m0(384, 128),
        RowFormat::mla_fp8_e8m0(448, 64, 64, DType::f16),
        RowFormat::scaled(DType::fp8_e4m3, 512, 64, DType::e8m0)}) {
    EXPECT_NE(refuse_sparse_problem(whole_problem(1, 64, format)), "") << format.describe();
  }
  // Powers of two behind 512 + 64 columns.
  SparseMlaProblem problem = decode_problem(1, 64);
  problem.cache.row_format = RowFormat::mla_fp8_e8m0(512, 64);
  EXPECT_NE(refuse_sparse_problem(problem), "");
}

TEST(PlanSparse, SaysWhatItDoesNotTake) {
  SparseMlaProblem problem = decode_problem(1, 64);
  EXPECT_EQ(refuse_sparse_problem(problem), "");
  for (const RowFormat& format :
       {RowFormat::uniform(DType::bf16, 576), RowFormat::uniform(DType::fp8_e4m3, 576),
        RowFormat::mla_fp8_token(), RowFormat::scaled(DType::fp8_e4m3, 576, 576)}) {
    problem.cache.row_format = format;
    EXPECT_EQ(refuse_sparse_problem(problem), "") << format.describe();
  }
  for (const RowFormat& format :
       {RowFormat::uniform(DType::f16, 576), RowFormat::mla_fp8_block(512, 64, 64),
        RowFormat::mla_fp8_token(512, 64, DType::f16),
        RowFormat::scaled(DType::fp8_e4m3, 576, 128)}) {
    problem.cache.row_format = format;
    EXPECT_NE(refuse_sparse_problem(problem), "") << format.describe();
  }
  problem = decode_problem(1, 64);
  problem.extra_k = 3;
  problem.extra_format = RowFormat::uniform(DType::bf16, 576);
  EXPECT_NE(refuse_sparse_problem(problem), "");
  problem = decode_problem(1, 64);
  problem.alignment = 8;
  EXPECT_NE(refuse_sparse_problem(problem), "");
  problem = decode_problem(1, 64);
  problem.latent_dim = 448;
  EXPECT_NE(refuse_sparse_problem(problem), "");
}

}  // namespace
}  // namespace quire::cuda::sm90::sparse_mla
