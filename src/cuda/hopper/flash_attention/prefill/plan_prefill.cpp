// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/flash_attention/prefill/plan_prefill.h"

#include <algorithm>

#include "cuda/hopper/flash_attention/visible_range.h"

namespace quire::cuda::hopper {
namespace {

// Copies come in whole groups of 8 rows, the pattern of the swizzle.
constexpr std::int64_t kFewestBoxRows = 8;

int box_rows_of(std::int64_t page_size, int block_keys) {
  int rows = 1;
  while (page_size % (2 * rows) == 0 && block_keys % (2 * rows) == 0) rows *= 2;
  return rows;
}

bool is_plain_cache(const FlashAttentionProblem& problem) {
  const RowFormat& format = problem.cache.row_format;
  const DType dtype = format.parts[0].dtype;
  return format.num_parts == 1 && (dtype == problem.q_dtype || dtype == DType::fp8_e4m3) &&
         format.parts[0].scale_source == ScaleSource::none && !problem.cache.is_mla;
}

}  // namespace

const PrefillVariant* find_prefill(const FlashAttentionProblem& problem, Scores scores) {
  const auto* found = std::ranges::find_if(kPrefillVariants, [&](const PrefillVariant& variant) {
    const PrefillConfig& config = variant.config;
    return config.dtype == problem.q_dtype &&
           config.cache_dtype == problem.cache.row_format.parts[0].dtype &&
           config.head_dim == problem.head_dim && config.value_dim == problem.value_dim &&
           config.scores == scores;
  });
  return found == std::end(kPrefillVariants) ? nullptr : found;
}

std::string refuse_prefill(const FlashAttentionProblem& problem) {
  if (problem.q_dtype != DType::bf16 && problem.q_dtype != DType::f16) {
    return "q is not bf16 or f16";
  }
  if (!is_plain_cache(problem)) {
    return "the cache does not hold unscaled numbers of q's dtype or of e4m3";
  }
  if (problem.out_dtype != problem.q_dtype) return "out is not of q's dtype";
  if (find_prefill(problem, Scores::scaled) == nullptr) {
    return "no tile kernel of head_dim " + std::to_string(problem.head_dim) + ", value_dim " +
           std::to_string(problem.value_dim);
  }
  if (problem.cache.page_size % kFewestBoxRows != 0) return "page_size is no multiple of 8";
  if (problem.alignment % 16 != 0) return "rows are not aligned to 16 bytes";
  return refuse_range(problem.mask);
}

PrefillPlan plan_prefill(const FlashAttentionProblem& problem, Scores scores, int num_sms) {
  PrefillPlan plan;
  plan.variant = find_prefill(problem, scores);
  const PrefillConfig& config = plan.variant->config;
  plan.box_rows = box_rows_of(problem.cache.page_size, config.block_keys);
  const std::int64_t group = problem.heads / problem.cache.num_kv_heads;
  while (group % (2 << plan.tile_heads_log2) == 0 &&
         config.rows() % (2 << plan.tile_heads_log2) == 0) {
    ++plan.tile_heads_log2;
  }
  const std::int64_t tile_heads = std::int64_t{1} << plan.tile_heads_log2;
  // One more for each sequence's last, partly filled tile.
  const std::int64_t tiles =
      (problem.ragged.tokens * tile_heads / config.rows() + problem.ragged.batch) *
      (problem.heads / tile_heads);
  plan.blocks = static_cast<int>(std::min<std::int64_t>(tiles, num_sms));
  return plan;
}

}  // namespace quire::cuda::hopper
