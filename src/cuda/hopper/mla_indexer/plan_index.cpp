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

// Keys of the longest row that may come.
std::int64_t max_row_keys(const MlaIndexerProblem& problem) {
  const std::int64_t room = problem.cache.max_pages * problem.cache.page_size;
  return problem.ragged.max_keys < 0 ? room : std::min(room, problem.ragged.max_keys);
}

// Clusters that run at once. Beyond pairs, SMs are left over in GPCs: an H200 of 132 SMs runs 66 clusters of
// two thread blocks, 30 of four, 15 of eight and 7 of sixteen (cudaOccupancyMaxActiveClusters).
std::int64_t resident_clusters(int num_sms, int size) {
  return size <= 2 ? num_sms / size : num_sms * 10 / 11 / size;
}

int whole_tiles(std::int64_t keys) {
  return static_cast<int>((keys + IndexConfig::kTileKeys - 1) / IndexConfig::kTileKeys *
                          IndexConfig::kTileKeys);
}

// A row to several clusters, each of which leaves the best of a group of its keys: where few rows are so long
// that a thread block cannot hold one. Groups of 8 K keys were the best of those tried for one to
// four rows of 40 K to 128 K keys; beyond that the line was not compared. Off: with scores on both sides of
// zero it takes 34.5 µs for 128 K keys where the line takes 31.1.
ClusterShape plan_groups(std::int64_t rows, std::int64_t keys, int top_k, int num_sms) {
  constexpr std::int64_t kMostRows = 0;
  constexpr std::int64_t kGroupKeys = 8192;
  constexpr int kMostGroups = 16;
  if (rows > kMostRows) return {};
  const int size = rows < kMostRows ? 8 : 4;
  const std::int64_t groups = std::min<std::int64_t>(
      {kMostGroups, (keys + kGroupKeys - 1) / kGroupKeys, resident_clusters(num_sms, size) / rows,
       kMaxClusterKeys / GroupLists::stride_of(top_k)});
  if (groups == 0 || (keys + groups - 1) / groups + IndexConfig::kTileKeys > kMaxClusterKeys)
    return {};
  // A group takes whole tiles.
  const std::int64_t tiles = whole_tiles(keys) / IndexConfig::kTileKeys;
  return {.size = size,
          .groups = static_cast<int>(groups),
          .capacity = static_cast<int>((tiles + groups - 1) / groups) * IndexConfig::kTileKeys,
          .writers = static_cast<int>(kMaxCluster)};
}

// A row to a cluster: where its ranks find room in a thread block, and where clusters that wait for the
// longest row end before pieces of equal parts have been merged. While that is done, a thread block
// scores kMergedKeys (B = 64 × 8 K keys).
ClusterShape plan_cluster(const MlaIndexerProblem& problem, const IndexVariant& variant,
                          int num_sms) {
  constexpr std::int64_t kMergedKeys = 4800;
  const std::int64_t rows = problem.ragged.tokens;
  const std::int64_t keys = max_row_keys(problem);
  if (variant.launch_cluster == nullptr || rows > num_sms) return {};
  if (keys > kMaxClusterKeys) {
    return plan_groups(rows, keys, static_cast<int>(problem.top_k), num_sms);
  }
  int size = kMaxCluster;
  while (size > 1 && rows > resident_clusters(num_sms, size)) size /= 2;
  if (keys / size > kMergedKeys + keys * rows / num_sms) return {};
  return {.size = size, .capacity = whole_tiles(keys)};
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
  plan.cluster = plan_cluster(problem, *plan.variant, num_sms);
  return plan;
}

}  // namespace quire::cuda::hopper
