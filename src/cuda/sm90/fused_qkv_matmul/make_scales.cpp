// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/fused_qkv_matmul/make_scales.h"

#include "cuda/common/matmul/side_by_side.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

QkvScales make_scales(const FusedQkvArgs& args) {
  if (!args.input_scale.has_value() || !args.weight.scale.has_value()) return {};
  const auto stride = [](const TensorView& scale, int dim) {
    return scale.shape[dim] == 1 ? 0 : scale.strides[dim];
  };
  const auto side_by_side = [&](const TensorView& scale) {
    return stand_side_by_side(scale.as<const float>(), stride(scale, 0), stride(scale, 1),
                              scale.shape[1]);
  };
  const TensorView& x = *args.input_scale;
  const TensorView& weight = *args.weight.scale;
  // One block of K is neither here nor there: it is a row's scale, unless rows come in 128s too.
  const bool weight_by_block = weight.shape[0] != 1 && weight.shape[0] != args.weight.data.shape[0];
  return {.x = x.as<const float>(),
          .x_token_stride = stride(x, 0),
          .x_block_stride = stride(x, 1),
          .weight = weight.as<const float>(),
          .weight_row_stride = stride(weight, 0),
          .weight_block_stride = stride(weight, 1),
          .x_by_block = x.shape[1] > 1,
          .weight_by_block = weight_by_block || weight.shape[1] > 1,
          .x_side_by_side = side_by_side(x),
          .weight_side_by_side = side_by_side(weight)};
}

}  // namespace quire::cuda::sm90::fused_qkv_matmul
