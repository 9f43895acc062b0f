// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/mla_decode/plan_decode.h"

#include <algorithm>

#include "cuda/hopper/flash_attention/decode/work_line.h"

namespace quire::cuda::hopper {
namespace {

// Of one sequence: the op allows no more than eight.
std::int64_t new_tokens_of(const MlaDecodeProblem& problem) {
  const std::int64_t most = problem.ragged.max_new_tokens;
  return std::clamp<std::int64_t>(most < 0 ? kMlaDecodeMaxNewTokens : most, 1,
                                  kMlaDecodeMaxNewTokens);
}

std::string refuse_dtypes(const MlaDecodeProblem& problem) {
  const RowFormat& format = problem.cache.row_format;
  if (problem.q_dtype != DType::bf16 || problem.out_dtype != DType::bf16) {
    return "q and out are not both bf16";
  }
  const bool is_plain = format.is_uniform() && format.parts[0].dtype == DType::bf16 &&
                        format.parts[0].scale_source == ScaleSource::none;
  return is_plain ? "" : "rows of " + format.describe();
}

}  // namespace

std::string refuse_mla_decode_problem(const MlaDecodeProblem& problem) {
  if (problem.latent_dim != LatentConfig::kLatent || problem.rope_dim != LatentConfig::kRope) {
    return "rows are not of 512 latent and 64 rope columns";
  }
  const std::string dtypes = refuse_dtypes(problem);
  if (!dtypes.empty()) return dtypes;
  if (problem.nope_dim > 0 || problem.finishes_rows) return "q is not absorbed and rotated already";
  if (problem.heads > kMlaDecodeVariants[1].config.rows()) return "more than 128 heads";
  if (problem.cache.page_size % LatentConfig::kWarpKeys != 0) {
    return "pages are not of a multiple of 16 tokens";
  }
  if (problem.alignment % 16 != 0) return "rows are not aligned to 16 bytes";
  return refuse_range(problem.mask);
}

MlaDecodePlan plan_mla_decode(const MlaDecodeProblem& problem, int num_sms) {
  const std::int64_t tokens = new_tokens_of(problem);
  MlaDecodePlan plan;
  for (const MlaDecodeVariant& variant : kMlaDecodeVariants) {
    plan.variant = &variant;
    if (variant.config.rows() >= problem.heads * tokens) break;
  }
  // Other sequences' tokens may ask for more rows, but not for another order of sums.
  if (problem.batch_invariant && problem.heads > LatentConfig::kGroupRows / kMlaDecodeMaxNewTokens) {
    plan.variant = &kMlaDecodeVariants[1];
  }
  plan.tile_tokens = static_cast<int>(plan.variant->config.rows() / problem.heads);
  plan.split = {.blocks = num_sms / LatentConfig::kCluster,
                .is_invariant = problem.batch_invariant,
                .max_tiles = ceil_div(static_cast<int>(tokens), plan.tile_tokens)};
  plan.slots = problem.batch_invariant
                   ? problem.ragged.batch * plan.split.max_tiles * kMaxPieces
                   : 2 * std::int64_t{plan.split.blocks};
  return plan;
}

}  // namespace quire::cuda::hopper
