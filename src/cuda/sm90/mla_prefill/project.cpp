// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_prefill/project.h"

#include <algorithm>

#include "cuda/common/matmul/params.h"
#include "cuda/common/mma/row_order.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/sm90/mla_prefill/params.h"

namespace quire::cuda::sm90::mla_prefill {
namespace {

// By tiles of fused_qkv_matmul.

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

// Tiles of 256 columns, two below each other in a cluster (params.h).
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

// With e4m3 weights of up to 512 latents, which stay in shared memory.

constexpr int kStepRows = 64;
constexpr int kStoredRows = 16;
constexpr int kHeadColumns = 256;

// As many blocks as there are SMs, but two steps of rows for each.
int splits_of(const ProjectionParams& params, int heads) {
  const int per_head = num_sms(params.x.device.index) / std::max(heads, 1);
  const auto pairs = static_cast<int>((params.x.shape[0] + 2 * kStepRows - 1) / (2 * kStepRows));
  return std::clamp(per_head, 1, std::max(pairs, 1));
}

// What a warp stores at a time of y, heads first: 16 rows of K or of V, swizzle columns of 128 bytes.
TileDescriptor head_tile(const TensorView& y) {
  constexpr int kParts = 2;
  const int swizzle_columns = depth_chunks(y.dtype, Swizzle::b128, static_cast<int>(y.shape[2]));
  return make_folded_tile(
      row_matrix_of(y),
      {.swizzle = Swizzle::b128, .box_rows = kStoredRows, .fold_chunks = swizzle_columns / kParts});
}

// Only bf16 queries have keys of e4m3.
auto stationary_launcher(DType stored) {
  if (stored == DType::fp8_e4m3) return launch_stationary<DType::bf16, DType::fp8_e4m3>;
  return stored == DType::bf16 ? launch_stationary<DType::bf16, DType::bf16>
                               : launch_stationary<DType::f16, DType::f16>;
}

int heads_of(const ProjectionParams& params) {
  return static_cast<int>(params.weight.shape[0] / kHeadColumns);
}

bool is_stationary(const ProjectionParams& params) {
  return params.x.dtype == DType::fp8_e4m3 && blocks_of_k(params.x) == StationaryParams::kBlocks;
}

// Whether the rotation takes the kernel no longer than its products do. Measured: 32 heads of a token take a warp about as long as two warpgroups take for 64 rows.
bool rotates_beside(const ProjectionParams& params) {
  constexpr std::int64_t kRotators = 3;
  constexpr std::int64_t kRotatedHeads = 32;
  const QueryRotation& rotation = params.rotation;
  const int splits = splits_of(params, heads_of(params));
  const std::int64_t groups = std::int64_t{rotation.tokens - rotation.first_token} *
                              ((rotation.heads + kRotatedHeads - 1) / kRotatedHeads);
  const std::int64_t warps = kRotators * heads_of(params) * splits;
  return groups / warps <= 2 * params.x.shape[0] / (std::int64_t{kStepRows} * splits);
}

void project_stationary(const ProjectionParams& params, cudaStream_t stream) {
  const TensorView& weight = params.weight;
  const int heads = heads_of(params);
  const StationaryParams stationary{
      .x = encode_tensor_map(row_tile(params.x, kStepRows), params.x.data),
      .weight = encode_tensor_map(row_tile(weight, kHeadColumns), weight.data),
      .y = encode_tensor_map(head_tile(params.y), params.y.data),
      .x_scales = params.x_scales,
      .weight_scales = params.weight_scales,
      .weight_scale_strides = {params.weight_scale_strides[0], params.weight_scale_strides[1]},
      .live_rows = params.live_rows,
      .rows = static_cast<int>(params.x.shape[0]),
      .heads = heads,
      .splits = splits_of(params, heads),
      .rotation = params.rotation};
  stationary_launcher(params.y.dtype)(stationary, stream);
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
