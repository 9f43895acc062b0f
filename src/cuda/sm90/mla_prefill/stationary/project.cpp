// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_prefill/project.h"

#include <algorithm>

#include "cuda/common/matmul/params.h"
#include "cuda/common/runtime/device_facts.h"

namespace quire::cuda::sm90::mla_prefill {
namespace {

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
auto launcher(DType stored) {
  if (stored == DType::fp8_e4m3) return launch_stationary<DType::bf16, DType::fp8_e4m3>;
  return stored == DType::bf16 ? launch_stationary<DType::bf16, DType::bf16>
                               : launch_stationary<DType::f16, DType::f16>;
}

int heads_of(const ProjectionParams& params) {
  return static_cast<int>(params.weight.shape[0] / kHeadColumns);
}

}  // namespace

bool is_stationary(const ProjectionParams& params) {
  return params.x.dtype == DType::fp8_e4m3 && blocks_of_k(params.x) == StationaryParams::kBlocks;
}

// Measured: 32 heads of a token take a warp about as long as two warpgroups take for 64 rows.
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
  launcher(params.y.dtype)(stationary, stream);
}

}  // namespace quire::cuda::sm90::mla_prefill
