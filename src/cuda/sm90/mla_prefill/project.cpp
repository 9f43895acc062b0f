// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_prefill/project.h"

#include <algorithm>

#include "cuda/common/matmul/params.h"
#include "cuda/common/mma/row_order.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/sm90/mla_prefill/variants.h"

namespace quire::cuda::sm90::mla_prefill {
namespace {

QkvScales scales_of(const ProjectionParams& params) {
  if (params.x_scales == nullptr) return {};
  const std::int64_t blocks = (params.x.shape[1] + 127) / 128;
  return {.x = params.x_scales,
          .x_token_stride = params.x_scale_stride,
          .x_block_stride = 1,
          .weight = params.weight_scales,
          .weight_row_stride = params.weight_scale_strides[0],
          .weight_block_stride = params.weight_scale_strides[1],
          .x_by_block = true,
          .weight_by_block = true,
          .x_side_by_side = stand_side_by_side(params.x_scales, params.x_scale_stride, 1, blocks),
          .weight_side_by_side =
              stand_side_by_side(params.weight_scales, params.weight_scale_strides[0],
                                 params.weight_scale_strides[1], blocks)};
}

// All columns are Q's. Every row is of a sequence without pages.
QkvOutputs outputs_of(const ProjectionParams& params) {
  const auto columns = static_cast<int>(params.y.shape[1] * params.y.shape[2]);
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

// Tiles of 256 columns, two below each other in a cluster (variants.h).
TileGrid grid_of(const ProjectionParams& params) {
  constexpr TileConfig kConfig = ProjectBf16::kConfig;
  constexpr std::int64_t kRows = std::int64_t{kConfig.tokens()} * kConfig.weight_sharers();
  static_assert(kConfig.token_sharers() == 1 && ProjectFp8::kConfig.tile_n == kConfig.tile_n);
  return {.rows = static_cast<int>((params.x.shape[0] + kRows - 1) / kRows),
          .columns = static_cast<int>(params.weight.shape[0] / kConfig.tile_n),
          .band = 8};
}

auto launcher(DType dtype) {
  if (dtype == DType::bf16) return launch_projection<ProjectBf16>;
  return dtype == DType::f16 ? launch_projection<ProjectF16> : launch_projection<ProjectFp8>;
}

TileParams tile_params(const ProjectionParams& params) {
  constexpr TileConfig kConfig = ProjectBf16::kConfig;
  const TensorView& x = params.x;
  const TensorView& weight = params.weight;
  const std::int64_t rows = (x.shape[0] + 7) / 8 * 8;
  const auto box_rows = static_cast<int>(std::min<std::int64_t>(kConfig.kept_tokens, rows));
  return {.x = encode_tensor_map(row_tile(x, box_rows), x.data),
          .weight = encode_tensor_map(
              make_quad_ordered_tile(row_matrix_of(weight),
                                     {.box_groups = kConfig.box_groups(kConfig.tile_n),
                                      .l2_promotion = L2Promotion::b256}),
              weight.data),
          .k_blocks = blocks_of_k(x),
          .box_tokens = box_rows,
          .grid = grid_of(params),
          .scales = scales_of(params),
          .outputs = outputs_of(params)};
}

}  // namespace

bool rotates_queries(const ProjectionParams& params) {
  return is_stationary(params) && rotates_beside(params);
}

void project_rows(const ProjectionParams& params, cudaStream_t stream) {
  if (is_stationary(params)) return project_stationary(params, stream);
  constexpr int kCluster = ProjectBf16::kConfig.cluster;
  const TileParams tiles = tile_params(params);
  const int clusters =
      std::min(num_sms(params.x.device.index) / kCluster, tiles.grid.rows * tiles.grid.columns);
  launcher(params.x.dtype)(tiles, params.live_rows,
                           {.blocks = clusters * kCluster, .stream = stream});
}

}  // namespace quire::cuda::sm90::mla_prefill
