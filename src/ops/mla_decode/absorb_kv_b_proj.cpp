// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "ops/argument.h"
#include "ops/latent_check.h"
#include "quire/ops/mla_decode.h"

namespace quire {
namespace {

// A matrix [heads · (first + second), columns], one of its two bands of rows per head.
struct Band {
  std::int64_t heads;
  std::int64_t rows_per_head;
  std::int64_t first_row;
  std::int64_t num_rows;
};

TensorView view_band(const TensorView& matrix, const Band& band) {
  TensorView view = matrix;
  view.data = matrix.as<std::byte>() + bytes_for(matrix.dtype, band.first_row * matrix.strides[0]);
  view.rank = 3;
  view.shape = {band.heads, band.num_rows, matrix.shape[1]};
  view.strides = {band.rows_per_head * matrix.strides[0], matrix.strides[0], matrix.strides[1]};
  return view;
}

TensorView transpose(TensorView view) {
  std::swap(view.shape[1], view.shape[2]);
  std::swap(view.strides[1], view.strides[2]);
  return view;
}

}  // namespace

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
  const Band key{.heads = heads, .rows_per_head = per_head, .first_row = 0, .num_rows = nope};
  const Band value{
      .heads = heads, .rows_per_head = per_head, .first_row = nope, .num_rows = per_head - nope};
  AbsorbedWeights weights{.w_uk = transpose(view_band(kv_b_proj, key)),
                          .w_uv = view_band(kv_b_proj, value)};
  if (!kv_b_proj_scale.has_value()) return weights;

  if (nope % ops::kScaleBlock != 0 || per_head % ops::kScaleBlock != 0) {
    check.fail("kv_b_proj_scale", "of blocks that no head shares: nope and value multiples of 128",
               fmt::format("nope {} and value {}", nope, per_head - nope));
  }
  const auto in_blocks = [](Band band) {
    return Band{.heads = band.heads,
                .rows_per_head = band.rows_per_head / ops::kScaleBlock,
                .first_row = band.first_row / ops::kScaleBlock,
                .num_rows = band.num_rows / ops::kScaleBlock};
  };
  weights.w_uk_scale = transpose(view_band(*kv_b_proj_scale, in_blocks(key)));
  weights.w_uv_scale = view_band(*kv_b_proj_scale, in_blocks(value));
  return weights;
}

}  // namespace quire
