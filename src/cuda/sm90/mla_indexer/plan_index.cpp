// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_indexer/plan_index.h"

#include <algorithm>

#include "cuda/common/paging/most_keys.h"
#include "cuda/sm90/mla_indexer/config.h"

namespace quire::cuda::sm90::mla_indexer {
namespace {

// Of one sequence; where nothing bounds them, as many as there are on average.
std::int64_t new_tokens_of(const MlaIndexerProblem& problem) {
  if (problem.ragged.max_new_tokens >= 0) return problem.ragged.max_new_tokens;
  const std::int64_t batch = std::max<std::int64_t>(problem.ragged.batch, 1);
  return (problem.ragged.tokens + batch - 1) / batch;
}

// The order in which a token's heads are added up is that of the variant: batch_invariant always takes the one
// for the most tokens, which is prefill's.
const IndexVariant* find_variant(const MlaIndexerProblem& problem) {
  const IndexVariant* best = nullptr;
  for (const IndexVariant& variant : kIndexVariants) {
    if (variant.config.heads != problem.heads || variant.config.dims != problem.head_dim) continue;
    best = &variant;
    if (!problem.batch_invariant && variant.config.tokens >= new_tokens_of(problem)) break;
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

// Clusters that run at once. Beyond pairs, SMs are left over in GPCs: an H200 of 132 SMs runs 66 clusters of
// two CTAs, 30 of four, 15 of eight and 7 of sixteen (cudaOccupancyMaxActiveClusters).
std::int64_t resident_clusters(int num_sms, int size) {
  return size <= 2 ? num_sms / size : num_sms * 10 / 11 / size;
}

// A row to a cluster: where its ranks find room in a CTA, and where clusters that wait for the
// longest row end before splits of equal parts have been merged. While that is done, a CTA
// scores kMergedKeys (B = 64 × 8 K keys).
ClusterShape plan_cluster(const MlaIndexerProblem& problem, const IndexVariant& variant,
                          int num_sms) {
  constexpr std::int64_t kMergedKeys = 4800;
  const std::int64_t rows = problem.ragged.tokens;
  const std::int64_t keys = most_keys(problem.ragged, problem.cache);
  if (variant.launch_cluster == nullptr || keys > kMaxClusterKeys || rows > num_sms) return {};
  int size = kMaxCluster;
  while (size > 1 && rows > resident_clusters(num_sms, size)) size /= 2;
  if (keys / size > kMergedKeys + keys * rows / num_sms) return {};
  const std::int64_t tiles = (keys + IndexConfig::kTileKeys - 1) / IndexConfig::kTileKeys;
  return {.size = size, .capacity = static_cast<int>(tiles * IndexConfig::kTileKeys)};
}

// A few rows to groups of CTAs: where rows are long enough for many of them, and none may have more
// keys than it has room for, whatever the lengths turn out to be (group/own_keys.cuh).
GroupShape plan_group(const MlaIndexerProblem& problem, const IndexVariant& variant, int parts) {
  const std::int64_t rows = problem.ragged.tokens;
  if (variant.launch_group == nullptr || rows > kMostGroups || 2 * rows > parts) return {};
  constexpr std::int64_t kTile = IndexConfig::kTileKeys;
  const std::int64_t max_tiles = (most_keys(problem.ragged, problem.cache) + kTile - 1) / kTile;
  const std::int64_t capacity = (max_tiles * rows / (parts - rows) + 1) * kTile;
  if (capacity > kMaxGroupKeys) return {};
  return {.parts = parts,
          .capacity = static_cast<int>(capacity),
          .max_tiles = static_cast<int>(max_tiles)};
}

}  // namespace

std::string refuse_index_problem(const MlaIndexerProblem& problem) {
  if (find_variant(problem) == nullptr) {
    return "no kernel of " + std::to_string(problem.heads) + " heads of " +
           std::to_string(problem.head_dim) + " columns";
  }
  if (problem.top_k > IndexConfig::kMaxTopK) return "top_k above 2048";
  if (problem.tokens_per_key > kMostTokensPerKey) {
    return "a key stands for more than " + std::to_string(kMostTokensPerKey) + " tokens";
  }
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
  plan.cluster = plan_cluster(problem, *plan.variant, num_sms);
  plan.group = plan_group(problem, *plan.variant, plan.parts);
  if (plan.takes_whole_rows() && plan.has_groups()) {
    // Clusters have no barrier of the grid and no heads; groups have all SMs. Of 1 – 32 rows of 8 K keys clusters end
    // first, by a µs at most, of 16 K groups, by up to four.
    constexpr std::int64_t kClusterKeys = 10240;
    if (most_keys(problem.ragged, problem.cache) <= kClusterKeys) {
      plan.group = {};
    } else {
      plan.cluster = {};
    }
  }
  return plan;
}

IndexPlan fit_share(IndexPlan plan, const StreamShare& share) {
  if (plan.group.parts > share.num_sms) plan.group = {};
  while (plan.cluster.size > share.max_cluster) plan.cluster.size /= 2;
  return plan;
}

}  // namespace quire::cuda::sm90::mla_indexer
