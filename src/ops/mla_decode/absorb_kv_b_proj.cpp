// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "core/split_kv_b_proj.h"
#include "ops/argument.h"
#include "ops/latent_check.h"
#include "quire/ops/mla_decode.h"

namespace quire {
AbsorbedWeights absorb_kv_b_proj(const TensorView& kv_b_proj, std::int64_t heads, std::int64_t nope,
                                 const std::optional<TensorView>& kv_b_proj_scale) {
  ops::Arguments check("absorb_kv_b_proj");
  check.tensor("kv_b_proj", kv_b_proj).is(ops::kFloats, {"heads · (nope + value)", "latent"});
  check.is_at_least("heads", heads, 1);
  check.is_at_least("nope", nope, 1);
  const std::int64_t per_head = kv_b_proj.shape[0] / heads;
  if (kv_b_proj.shape[0] % heads != 0 || per_head <= nope) {
    check.fail("kv_b_proj", fmt::format("{} equal heads of more than {} rows", heads, nope),
               kv_b_proj.describe());
  }
  ops::check_block_scale(check, "kv_b_proj_scale", kv_b_proj_scale, kv_b_proj);
  const bool has_whole_blocks = nope % ops::kScaleBlock == 0 && per_head % ops::kScaleBlock == 0;
  if (kv_b_proj_scale.has_value() && !has_whole_blocks) {
    check.fail("kv_b_proj_scale", "of blocks that no head shares: nope and value multiples of 128",
               fmt::format("nope {} and value {}", nope, per_head - nope));
  }
  const SplitKvBProj split = split_kv_b_proj(kv_b_proj, heads, nope, kv_b_proj_scale);
  return {.w_uk = split.w_uk,
          .w_uv = split.w_uv,
          .w_uk_scale = split.w_uk_scale,
          .w_uv_scale = split.w_uv_scale};
}

}  // namespace quire
