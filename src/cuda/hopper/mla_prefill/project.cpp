// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/mla_prefill/project.h"

#include "cuda/hopper/fused_qkv_matmul/plan_tiles.h"
#include "cuda/hopper/tile/row_order.h"
#include "cuda/runtime/device_facts.h"

namespace quire::cuda::hopper {
namespace {

constexpr std::int64_t kBlockBytes = 128;    // of K
constexpr std::int64_t kScaleColumns = 128;  // of K that share a scale

TileDescriptor row_tile(const TensorView& x, int box_rows) {
  TileDescriptor tile;
  tile.dtype = x.dtype;
  tile.rank = 2;
  tile.dims = {x.shape[1], x.shape[0]};
  tile.strides_bytes = {bytes_for(x.dtype, x.strides[0])};
  tile.box = {static_cast<std::int32_t>(kBlockBytes / bytes_for(x.dtype, 1)), box_rows};
  tile.swizzle = Swizzle::b128;
  tile.l2_promotion = L2Promotion::b256;
  return tile;
}

QkvScales scales_of(const ProjectionParams& params) {
  if (params.x_scales == nullptr) return {};
  return {.x = params.x_scales,
          .x_token_stride = (params.x.shape[1] + kScaleColumns - 1) / kScaleColumns,
          .x_block_stride = 1,
          .weight = params.weight_scales,
          .weight_row_stride = params.weight_scale_strides[0],
          .weight_block_stride = params.weight_scale_strides[1],
          .x_by_block = true,
          .weight_by_block = true};
}

// All columns are Q's. Every row is of a sequence without pages.
QkvOutputs outputs_of(const ProjectionParams& params) {
  const auto columns = static_cast<int>(params.y.shape[1]);
  QkvOutputs outputs{.q = params.y.as<std::byte>(),
                     .q_stride_bytes = bytes_for(params.y.dtype, params.y.strides[0]),
                     .q_dtype = params.y.dtype,
                     .q_dim = columns,
                     .head_dim = 1,
                     .columns = columns,
                     .kv_dtype = params.y.dtype,
                     .row_offsets = params.zeros,
                     .batch = 1,
                     .tokens = static_cast<int>(params.y.shape[0])};
  outputs.keys.page_size = 1;
  outputs.keys.cache_lengths = params.zeros;
  outputs.keys.batch = 1;
  return outputs;
}

}  // namespace

void project_rows(const ProjectionParams& params, cudaStream_t stream) {
  const TensorView& weight = params.weight;
  const TileShape shape{.tokens = params.x.shape[0],
                        .columns = weight.shape[0],
                        .dtype = params.x.dtype,
                        .scaling = params.x_scales == nullptr ? Scaling::none : Scaling::blocks};
  const TilePlan plan = plan_tiles(shape, num_sms(params.x.device.index));
  const std::int64_t k_bytes = bytes_for(params.x.dtype, params.x.shape[1]);
  plan.variant->launch(
      {.x = encode_tensor_map(row_tile(params.x, plan.box_tokens), params.x.data),
       .weight = encode_tensor_map(quad_ordered_tile(weight.dtype, weight.shape[0], weight.shape[1],
                                                     bytes_for(weight.dtype, weight.strides[0]),
                                                     plan.variant->config.box_groups()),
                                   weight.data),
       .k_blocks = static_cast<int>((k_bytes + kBlockBytes - 1) / kBlockBytes),
       .box_tokens = plan.box_tokens,
       .grid = plan.grid,
       .weight_is_read_once = plan.grid.rows == 1,
       .scales = scales_of(params),
       .outputs = outputs_of(params)},
      {.blocks = plan.blocks, .stream = stream});
}

}  // namespace quire::cuda::hopper
