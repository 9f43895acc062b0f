// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_decode/plan_decode.h"

#include <algorithm>

#include "cuda/common/softmax/score.h"
#include "cuda/common/split_kv/split_schedule.h"

namespace quire::cuda::sm90::mla_decode {
namespace {

// Of one sequence, at most: the op allows no more than eight.
std::int64_t most_new_tokens(const MlaDecodeProblem& problem) {
  const std::int64_t most = problem.ragged.max_new_tokens;
  return std::clamp<std::int64_t>(most < 0 ? problem.ragged.tokens : most, 1,
                                  kMlaDecodeMaxNewTokens);
}

// What most sequences have. Lengths in device memory are not known here: an even share of the tokens.
std::int64_t usual_new_tokens(const MlaDecodeProblem& problem) {
  const std::int64_t batch = std::max<std::int64_t>(problem.ragged.batch, 1);
  return std::clamp<std::int64_t>((problem.ragged.tokens + batch - 1) / batch, 1,
                                  most_new_tokens(problem));
}

std::string refuse_dtypes(const MlaDecodeProblem& problem) {
  constexpr int kWidth = LatentConfig::kLatent + LatentConfig::kRope;
  if (problem.q_dtype != DType::bf16 || problem.out_dtype != DType::bf16) {
    return "q and out are not both bf16";
  }
  const RowFormat& format = problem.cache.row_format;
  const bool is_known = format == RowFormat::uniform(DType::bf16, kWidth) ||
                        format == RowFormat::uniform(DType::fp8_e4m3, kWidth) ||
                        format == RowFormat::mla_fp8_token() ||
                        format == RowFormat::mla_fp8_block();
  return is_known ? "" : "rows of " + format.describe();
}

std::string refuse_weights(const MlaDecodeProblem& problem) {
  if (problem.nope_dim == 0) return problem.finishes_rows ? "an absorbed q to be rotated" : "";
  if (problem.nope_dim % 128 != 0) return "heads are not of a multiple of 128 columns";
  if (problem.value_dim % 8 != 0) return "values are not of a multiple of 8 columns";
  const bool is_known =
      problem.weight_dtype == DType::bf16 || problem.weight_dtype == DType::fp8_e4m3;
  return is_known ? "" : "weights of " + std::string(name(problem.weight_dtype));
}

bool takes(const MlaDecodeVariant& variant, const RowFormat& format) {
  const bool has_scales = format.parts[0].scale_source == ScaleSource::in_row;
  return variant.latents == format.parts[0].dtype &&
         (variant.taken == TakenRows::all ||
          has_scales == (variant.taken == TakenRows::with_scales));
}

// Four blocks share keys only where their rows are filled: idle ones would cost more than the second reading.
bool may_take(const MlaDecodeVariant& variant, const MlaDecodeProblem& problem,
              std::int64_t tokens) {
  if (!takes(variant, problem.cache.row_format)) return false;
  // Rounded products are for those who allow them, and take what rows need two tiles of.
  const bool is_wide_fp8 =
      variant.latents == DType::fp8_e4m3 && variant.rows > LatentConfig::kFewRows;
  if (is_wide_fp8 && variant.rounds_products != problem.allow_fp8_products) return false;
  constexpr int kTwoBlocks = 2 * LatentConfig::kGroupRows;
  return variant.rows <= kTwoBlocks ||
         (!problem.batch_invariant && problem.heads * tokens % variant.rows == 0);
}

// The fewest rows that hold what a sequence usually brings; else the most.
const MlaDecodeVariant* find_variant(const MlaDecodeProblem& problem) {
  // Other sequences' tokens may ask for more rows, but not for another order of sums.
  const std::int64_t tokens =
      problem.batch_invariant ? kMlaDecodeMaxNewTokens : usual_new_tokens(problem);
  const MlaDecodeVariant* best = nullptr;
  for (const MlaDecodeVariant& variant : kMlaDecodeVariants) {
    if (!may_take(variant, problem, tokens)) continue;
    best = &variant;
    if (variant.rows >= problem.heads * tokens) break;
  }
  return best;
}

// Clusters to share the work. Where nearly all of them come out even with the work tiles, every work tile is cut
// at the same places, or not at all, if sequences are equally long: each cut costs a split and its
// merge, more than a cluster in twenty.
int num_clusters(std::int64_t work_tiles, int most) {
  for (int clusters = most; clusters * 20 >= most * 19 && clusters > 0; --clusters) {
    if (work_tiles % clusters == 0 || clusters % work_tiles == 0) return clusters;
  }
  return most;
}

}  // namespace

std::string refuse_mla_decode_problem(const MlaDecodeProblem& problem) {
  if (problem.latent_dim != LatentConfig::kLatent || problem.rope_dim != LatentConfig::kRope) {
    return "rows are not of 512 latent and 64 rope columns";
  }
  std::string dtypes = refuse_dtypes(problem);
  if (!dtypes.empty()) return dtypes;
  std::string weights = refuse_weights(problem);
  if (!weights.empty()) return weights;
  if (problem.heads > 2 * LatentConfig::kGroupRows) return "more than 128 heads";
  if (problem.cache.num_pages == 0) return "the cache has no pages";
  if (problem.cache.page_size % LatentConfig::kWarpKeys != 0) {
    return "pages are not of a multiple of 16 tokens";
  }
  if (problem.alignment % 16 != 0) return "rows are not aligned to 16 bytes";
  std::string scale = refuse_scale(problem.scale);
  return scale.empty() ? refuse_range(problem.mask) : scale;
}

MlaDecodePlan plan_mla_decode(const MlaDecodeProblem& problem, int num_sms) {
  MlaDecodePlan plan;
  plan.variant = find_variant(problem);
  plan.tile_tokens = static_cast<int>(plan.variant->rows / problem.heads);
  const auto tiles = [&plan](std::int64_t tokens) {
    return ceil_div(static_cast<int>(tokens), plan.tile_tokens);
  };
  plan.work_tiles =
      std::max<std::int64_t>(problem.ragged.batch * tiles(usual_new_tokens(problem)), 1);
  plan.schedule = {.blocks = num_clusters(plan.work_tiles, num_sms / plan.variant->cluster),
                   .is_invariant = problem.batch_invariant,
                   .max_tiles = tiles(most_new_tokens(problem))};
  plan.leaves_room = plan.work_tiles % plan.schedule.blocks == 0 &&
                     plan.schedule.blocks * plan.variant->cluster < num_sms;
  plan.most_work_tiles = std::max<std::int64_t>(problem.ragged.batch * plan.schedule.max_tiles, 1);
  plan.slots = problem.batch_invariant ? problem.ragged.batch * plan.schedule.max_tiles * kMaxSplits
                                       : 2 * std::int64_t{plan.schedule.blocks};
  return plan;
}

}  // namespace quire::cuda::sm90::mla_decode
