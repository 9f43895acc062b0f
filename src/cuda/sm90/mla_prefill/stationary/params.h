// SPDX-License-Identifier: Apache-2.0
// The up-projection with e4m3 weights of 512 latents, or of more than 384: a thread block keeps one head's weights in
// shared memory and lets the rows pass by.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/common/runtime/tensor_map.h"
#include "cuda/sm90/mla_prefill/query_rotation.h"
#include "quire/dtype.h"

namespace quire::cuda::sm90::mla_prefill {

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
  int splits = 1;  // thread blocks that share a head's rows
  QueryRotation rotation;

  static constexpr int kBlocks = 4;  // of 128 latents
};

// kDType: of q. kStored: of y, the same or e4m3.
template <DType kDType, DType kStored>
void launch_stationary(const StationaryParams& params, cudaStream_t stream);

}  // namespace quire::cuda::sm90::mla_prefill
