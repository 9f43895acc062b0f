// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/fused_qkv_matmul/int4/few_tokens/plan_few.h"

#include <algorithm>

#include "cuda/common/matmul/int4/pack_order.h"
#include "cuda/common/runtime/carver.h"

namespace quire::cuda::sm90::fused_qkv_matmul {
namespace {

constexpr std::int64_t kMostXBytes = 160 * 1024;  // of shared memory, beside the sums
constexpr int kSwizzledBytes = 1024;              // stages begin at multiples of it

const FewTokensVariant* find_variant(const Int4Shape& shape) {
  const auto* found = std::find_if(std::begin(kFewTokensVariants), std::end(kFewTokensVariants),
                                   [&](const FewTokensVariant& variant) {
                                     return variant.config.dtype == shape.dtype &&
                                            shape.tokens <= variant.config.tokens;
                                   });
  return found == std::end(kFewTokensVariants) ? nullptr : found;
}

}  // namespace

FewTokensPlan plan_few_tokens(const Int4Shape& shape, int num_sms) {
  if (shape.batch_invariant) return {};  // K is split by the number of tokens
  // Panels that all run at a time are as fast, or faster.
  if (ceil_div(shape.columns, kPanelRows) <= num_sms) return {};
  const std::int64_t quarters = ceil_div(shape.columns, kQuarterRows);
  const std::int64_t blocks = std::min<std::int64_t>(num_sms, quarters);
  const std::int64_t most = ceil_div(quarters, blocks);  // of a block
  const FewTokensVariant* variant = find_variant(shape);
  if (variant == nullptr || most > kMostQuarterWarps) return {};
  // No more warps than needed for as few rounds.
  const std::int64_t rounds = ceil_div(shape.steps, kMostQuarterWarps / most);
  const std::int64_t parts = ceil_div(shape.steps, rounds);
  const std::int64_t stage_bytes =
      ceil_div(parts * 2 * shape.tokens * kUnitColumns * 2, kSwizzledBytes) * kSwizzledBytes;
  const std::int64_t stages =
      std::min({rounds, kMostXBytes / stage_bytes, std::int64_t{kMostXStages}});
  return {.variant = variant,
          .quarters = static_cast<int>(quarters),
          .blocks = static_cast<int>(blocks),
          .parts = static_cast<int>(parts),
          .warps = static_cast<int>(most * parts),
          .stages = static_cast<int>(stages),
          .stage_bytes = static_cast<int>(stage_bytes)};
}

}  // namespace quire::cuda::sm90::fused_qkv_matmul
