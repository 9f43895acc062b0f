// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/flash_attention/decode/plan_decode.h"

#include <algorithm>

#include "cuda/common/softmax/score.h"
#include "cuda/common/split_kv/split_schedule.h"

namespace quire::cuda::sm90::flash_attention {

namespace {

// Beyond, tiles of many rows read K and V less often.
constexpr std::int64_t kMostNewTokens = 16;

// The four warps that load put splits together a row at a time each: 1.3 µs less than a second kernel
// for 4 rows (16 sequences of 1024 keys), 4 µs more for 8 (one sequence).
constexpr std::int64_t kMostJoinedRows = 4;

std::int64_t group_of(const FlashAttentionProblem& problem) {
  return problem.heads / problem.cache.num_kv_heads;
}

// Of one sequence. Where nothing bounds them, as many as there are on average: sequences with more
// take more than one tile of rows.
std::int64_t new_tokens_of(const FlashAttentionProblem& problem) {
  if (problem.ragged.max_new_tokens >= 0) return problem.ragged.max_new_tokens;
  const std::int64_t batch = std::max<std::int64_t>(problem.ragged.batch, 1);
  return (problem.ragged.tokens + batch - 1) / batch;
}

bool takes_dtypes(DType q, DType cache) {
  if (q != DType::bf16 && q != DType::f16) return false;
  return cache == q || cache == DType::fp8_e4m3 || (q == DType::bf16 && cache == DType::f16);
}

// One scale for all rows of a KV head, which the softmax and the finished rows take in.
bool has_head_scales(const FlashAttentionProblem& problem) {
  return problem.has_head_scales && problem.cache.row_format.parts[0].dtype == DType::fp8_e4m3;
}

// Warps that share columns would be at the zeros behind narrower heads.
bool takes_width(const DecodeConfig& config, const FlashAttentionProblem& problem) {
  constexpr std::int64_t kWidestUnshared = 256;
  return problem.head_dim <= config.dims() &&
         (config.column_warps == 1 || problem.head_dim > kWidestUnshared);
}

// Tiles of rows read K and V again, each. Of wide heads, whose tiles have few rows, so many are as fast as prefill, which
// does not split the keys of a sequence.
constexpr std::int64_t kMostWideTiles = 4;

bool takes_new_tokens(const DecodeConfig& config, const FlashAttentionProblem& problem) {
  const std::int64_t tile_tokens = config.rows / group_of(problem);
  return config.dims() <= 128 ||
         new_tokens_of(problem) <= kMostWideTiles * std::max<std::int64_t>(tile_tokens, 1);
}

// The fewest rows that hold a sequence's new tokens, or one token's heads; else the most.
const DecodeVariant* find_variant(const FlashAttentionProblem& problem) {
  const DType dtype = problem.cache.row_format.parts[0].dtype;
  const std::int64_t needed = group_of(problem) * std::max<std::int64_t>(new_tokens_of(problem), 1);
  const DecodeVariant* best = nullptr;
  for (const DecodeVariant& variant : kDecodeVariants) {
    if (variant.config.dtype != dtype || !takes_width(variant.config, problem)) continue;
    if (variant.config.rows < group_of(problem)) continue;
    if (!takes_new_tokens(variant.config, problem)) continue;
    if (best != nullptr && variant.config.dims() > best->config.dims()) break;
    // Other sequences' tokens may ask for more rows, but not for another order of sums.
    if (problem.batch_invariant && variant.config.row_sets() > 1) continue;
    best = &variant;
    if (variant.config.rows >= needed) break;
  }
  return best;
}

// Work lists for up to eight neighbouring heads, 2 KiB of bf16, where that leaves hardly any multiprocessor
// without work: 128 of 132 read as fast as all (16 sequences of 8192 keys: 135 µs with 8 work lists, 137 with 4).
int list_bits(const FlashAttentionProblem& problem, int num_sms) {
  int bits = 0;
  for (int more = 1; more <= 3; ++more) {
    const bool has_heads = problem.cache.num_kv_heads % (1 << more) == 0;
    if (has_heads && num_sms % (1 << more) <= num_sms / 32) bits = more;
  }
  return bits;
}

// Lists become page tables (key_blocks.cu), whose keys are behind each other but for the last of them.
std::string refuse_lists(const FlashAttentionProblem& problem) {
  if (problem.max_key_blocks == 0) return "";
  const std::int64_t page_size = problem.cache.page_size;
  if (problem.has_ragged_keys) return "key_blocks without pages";
  if (problem.key_block_size % page_size != 0) {
    return "blocks of " + std::to_string(problem.key_block_size) + " keys are not whole pages of " +
           std::to_string(page_size);
  }
  if (!problem.mask.is_causal_or_full())
    return "a mask within key_blocks that is not causal or full";
  if (problem.has_alibi) return "ALiBi over key_blocks";
  if (problem.batch_invariant) return "batch_invariant over key_blocks";
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  if (problem.ragged.tokens * problem.cache.num_kv_heads >= kMost ||
      problem.max_key_blocks * problem.key_block_size >= kMost) {
    return "2^30 or more lists, or keys of a list";
  }
  return "";
}

}  // namespace

FlashAttentionProblem listed_problem(const FlashAttentionProblem& problem) {
  if (problem.max_key_blocks == 0) return problem;
  const std::int64_t lists = problem.ragged.tokens * problem.cache.num_kv_heads;
  FlashAttentionProblem listed = problem;
  listed.heads = group_of(problem);
  listed.cache.num_kv_heads = 1;
  listed.ragged = {.tokens = lists, .batch = lists, .max_new_tokens = 1};
  listed.mask = Mask::full().summary();
  listed.has_key_lengths = true;
  listed.max_key_blocks = 0;
  return listed;
}

std::string refuse_decode_problem(const FlashAttentionProblem& problem) {
  if (problem.max_key_blocks > 0) {
    std::string lists = refuse_lists(problem);
    return lists.empty() ? refuse_decode_problem(listed_problem(problem)) : lists;
  }
  const RowFormat& format = problem.cache.row_format;
  if (problem.cache.is_mla) return "the cache is MLA's";
  if (!problem.cache.values_match_keys) return "V's rows are not as wide and as far apart as K's";
  if (!format.is_uniform() ||
      (format.parts[0].scale_source != ScaleSource::none && !has_head_scales(problem))) {
    return "the cache's rows have scales of their own";
  }
  if (!takes_dtypes(problem.q_dtype, format.parts[0].dtype)) {
    return "q and cache are not both bf16 or f16, or e4m3 in the cache";
  }
  if (new_tokens_of(problem) > kMostNewTokens) return "more than 16 new tokens of a sequence";
  if (problem.batch_invariant && problem.ragged.max_new_tokens < 0) {
    return "batch_invariant without a bound on new tokens";
  }
  if (find_variant(problem) == nullptr) {
    return "no decode kernel of head_dim " + std::to_string(problem.head_dim) + " and " +
           std::to_string(group_of(problem)) + " heads to a KV head";
  }
  if (problem.alignment % 16 != 0 || format.row_bytes % 16 != 0 || problem.head_dim % 8 != 0) {
    return "rows are not aligned to 16 bytes";
  }
  std::string scale = refuse_scale(problem.scale);
  return scale.empty() ? refuse_tree_mask(problem.mask) : scale;
}

DecodePlan plan_decode(const FlashAttentionProblem& problem, int num_sms) {
  DecodePlan plan;
  plan.variant = find_variant(problem);
  plan.tile_tokens = static_cast<int>(plan.variant->config.rows / group_of(problem));
  const int max_tiles = ceil_div(static_cast<int>(new_tokens_of(problem)), plan.tile_tokens);
  const int bits = list_bits(problem, num_sms);
  plan.schedule = {.blocks = num_sms >> bits,
                   .is_invariant = problem.batch_invariant,
                   .max_tiles = std::max(max_tiles, 1)};
  const std::int64_t work_tiles =
      problem.ragged.batch * problem.cache.num_kv_heads * plan.schedule.max_tiles;
  const std::int64_t tokens = std::min<std::int64_t>(new_tokens_of(problem), plan.tile_tokens);
  plan.joins = !problem.batch_invariant && group_of(problem) * tokens <= kMostJoinedRows;
  plan.slots = problem.batch_invariant ? work_tiles * kMaxSplits
                                       : 2 * std::int64_t{plan.schedule.blocks << bits};
  plan.work_lists = {.bits = bits, .slots = plan.slots >> bits};
  return plan;
}

TreeMask tree_mask(const Mask& mask, const MaskSummary& summary) {
  TreeMask found{.visible = visible_range(summary), .intervals = token_intervals(mask)};
  if (summary.trees == 0) return found;
  for (const Mask::Node& node : mask.nodes()) {
    if (node.kind != MaskKind::tree) continue;
    found.tree = {.bits = node.bits.as<const std::uint8_t>(),
                  .token_stride = node.bits.strides[0],
                  .columns = static_cast<int>(node.bits.shape[1])};
  }
  return found;
}

std::string refuse_tree_mask(const MaskSummary& mask) {
  if (mask.trees > 1) return "the mask has more than one tree";
  MaskSummary without_tree = mask;
  without_tree.trees = 0;
  return refuse_narrowed_range(without_tree);
}

}  // namespace quire::cuda::sm90::flash_attention
