// SPDX-License-Identifier: Apache-2.0
// The up-projection of a chunk's latents, by the roles of fused_qkv_matmul: what those call Q is here
// [rows, heads of the group, K | V], of which the attention finds its columns where they are.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/common/runtime/tensor_map.h"
#include "cuda/sm90/mla_prefill/params.h"
#include "quire/dtype.h"
#include "quire/tensor_view.h"

namespace quire::cuda::sm90::mla_prefill {

// The up-projection with e4m3 weights of 512 latents, or of more than 384: a CTA keeps one head's weights in
// shared memory and lets the rows pass by.

struct StationaryParams {
  TensorMap x{};       // [rows, latent] e4m3; boxes of 64 rows
  TensorMap weight{};  // [heads · 256, latent] e4m3; boxes of 256 rows
  TensorMap y{};       // (column, row, swizzle column, head); boxes of 16 rows of K or V
  const float* x_scales = nullptr;       // [rows, 4], a scale per 128 latents
  const float* weight_scales = nullptr;  // [heads · 2, 4]
  std::int64_t weight_scale_strides[2] = {0, 0};
  const std::int32_t* live_rows = nullptr;  // on the device: the rest is not projected
  int rows = 0;
  int heads = 0;
  int splits = 1;  // CTAs that share a head's rows
  QueryRotation rotation;

  static constexpr int kBlocks = 4;  // of 128 latents
};

// kDType: of q. kStored: of y, the same or e4m3.
template <DType kDType, DType kStored>
void launch_stationary(const StationaryParams& params, cudaStream_t stream);

struct ProjectionParams {
  TensorView x;                     // [rows, latent]
  const float* x_scales = nullptr;  // [rows, ceil(latent / 128)], e4m3 only
  std::int64_t x_scale_stride = 0;
  TensorView weight;                     // [columns, latent], the group's rows of kv_b_proj
  const float* weight_scales = nullptr;  // of its first row, e4m3 only
  std::int64_t weight_scale_strides[2] = {0, 0};
  TensorView y;  // [rows, heads, K | V], dense, or heads first (BranchShape)
  const std::int32_t* live_rows = nullptr;  // on the device; none, or fewer, and nothing is done
  QueryRotation rotation;                   // done by the way where rotates_queries() says so
  // Two zeros on the device: where the kernels look for a sequence, whose pages no column goes to.
  const std::uint32_t* zeros = nullptr;
};

// Whether project_rows() has warps to spare for that: those of a grid that is busy for as long.
bool rotates_queries(const ProjectionParams& params);

void project_rows(const ProjectionParams& params, cudaStream_t stream);

}  // namespace quire::cuda::sm90::mla_prefill
