// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/mla_indexer/plan_index.h"

#include <algorithm>

#include "cuda/hopper/mla_indexer/piece_limits.h"

namespace quire::cuda::hopper {
namespace {

// Of one sequence; where nothing bounds them, as many as there are on average.
std::int64_t new_tokens_of(const MlaIndexerProblem& problem) {
  if (problem.ragged.max_new_tokens >= 0) return problem.ragged.max_new_tokens;
  const std::int64_t batch = std::max<std::int64_t>(problem.ragged.batch, 1);
  return (problem.ragged.tokens + batch - 1) / batch;
}

const IndexVariant* find_variant(const MlaIndexerProblem& problem) {
  const IndexVariant* best = nullptr;
  for (const IndexVariant& variant : kIndexVariants) {
    if (variant.config.heads != problem.heads || variant.config.dims != problem.head_dim) continue;
    best = &variant;
    if (variant.config.tokens >= new_tokens_of(problem)) break;
  }
  return best;
}

// Blocks of tokens that may be cut: never more than there are.
std::int64_t max_blocks(const MlaIndexerProblem& problem, int block_tokens) {
  const RaggedSize& ragged = problem.ragged;
  const std::int64_t any = (ragged.tokens + ragged.batch * (block_tokens - 1)) / block_tokens;
  if (ragged.max_new_tokens < 0) return any;
  return std::min(any, ragged.batch * ((ragged.max_new_tokens + block_tokens - 1) / block_tokens));
}

// Rows of a page that one copy brings.
int box_rows_of(std::int64_t page_size) {
  for (const int rows : {64, 32, 16}) {
    if (page_size % rows == 0) return rows;
  }
  return 0;
}

}  // namespace

std::string refuse_index_problem(const MlaIndexerProblem& problem) {
  if (find_variant(problem) == nullptr) {
    return "no kernel of " + std::to_string(problem.heads) + " heads of " +
           std::to_string(problem.head_dim) + " columns";
  }
  if (problem.top_k > IndexConfig::kMaxTopK) return "top_k above 2048";
  if (box_rows_of(problem.cache.page_size) == 0) return "page size is not a multiple of 16";
  if (problem.cache.row_format.parts[0].scale_source != ScaleSource::plane) {
    return "the scales stand in the rows";
  }
  if (!problem.has_dense_scales) return "a page's scales do not follow each other";
  if (problem.alignment % 16 != 0) return "rows are not aligned to 16 bytes";
  return "";
}

IndexPlan plan_index(const MlaIndexerProblem& problem, int num_sms) {
  IndexPlan plan;
  plan.variant = find_variant(problem);
  plan.parts = std::min(num_sms, kMaxParts);
  plan.box_rows = box_rows_of(problem.cache.page_size);
  plan.merges = static_cast<int>(
      std::min<std::int64_t>(plan.parts, max_blocks(problem, plan.variant->config.tokens)));
  return plan;
}

}  // namespace quire::cuda::hopper
