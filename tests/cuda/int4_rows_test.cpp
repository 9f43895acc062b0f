// SPDX-License-Identifier: Apache-2.0
// Rows of 4-bit codes: the CPU reads and writes them, no kernel of a GPU does. Pure, so it needs no GPU.
#include <string>

#include "cuda/kernels.h"
#include "gtest/gtest.h"

namespace quire::cuda {
namespace {

template <typename Problem, typename Args>
void expect_refusals(const Candidates<Problem, Args>& candidates, const Problem& problem,
                     const std::string& reason) {
  EXPECT_FALSE(candidates.empty());
  for (const auto& candidate : candidates) {
    EXPECT_EQ(candidate.refuse(problem), reason) << candidate.kernel;
  }
}

template <typename Problem, typename Args>
void expect_refusals(const Candidates<Problem, Args>& candidates) {
  for (const bool has_zeros : {false, true}) {
    Problem problem;
    problem.cache.row_format = RowFormat::int4(128, 32, DType::f16, has_zeros);
    expect_refusals(candidates, problem, "rows of the cache have 4-bit codes");
  }
}

TEST(Int4RowsTest, AreRefusedByEveryKernelThatTakesACache) {
  expect_refusals(compress_keys_kernels());
  expect_refusals(copy_pages_kernels());
  expect_refusals(flash_attention_kernels());
  expect_refusals(mla_decode_kernels());
  expect_refusals(mla_indexer_kernels());
  expect_refusals(mla_prefill_kernels());
  expect_refusals(projection_kernels("fused_qkv_matmul"));
  expect_refusals(select_blocks_kernels());
  expect_refusals(sparse_mla_kernels());
  expect_refusals(store_kernels());
  expect_refusals(store_scales_kernels());
  expect_refusals(store_index_keys_kernels());
}

TEST(Int4RowsTest, AreRefusedInTheSecondStreamOfSparseMla) {
  SparseMlaProblem problem;
  problem.cache.row_format = RowFormat::uniform(DType::bf16, 512);
  problem.extra_format = RowFormat::int4(512);
  expect_refusals(sparse_mla_kernels(), problem, "rows of the extra cache have 4-bit codes");
}

// One of two parts is enough, and numbers in whole bytes are not refused for their width.
TEST(Int4RowsTest, AreFoundInAnyPart) {
  FlashAttentionProblem problem;
  RowFormat& format = problem.cache.row_format;
  format = RowFormat::uniform(DType::bf16, 64);
  const std::string before = flash_attention_kernels().back().refuse(problem);
  EXPECT_EQ(before.find("4-bit"), std::string::npos) << before;
  format.parts[format.num_parts++] = {.dtype = DType::i4, .width = 64};
  expect_refusals(flash_attention_kernels(), problem, "rows of the cache have 4-bit codes");
}

}  // namespace
}  // namespace quire::cuda
