// SPDX-License-Identifier: Apache-2.0
// The scales of a product as a thread applies them: to the sum over a block of K (fp8 only), and to
// the finished sum. Thread: tokens `token` and `token + 8` (half 0, 1).
#pragma once

#include "cuda/hopper/fused_qkv_matmul/config.h"
#include "cuda/hopper/fused_qkv_matmul/params.h"

namespace quire::cuda::hopper {

struct Unscaled {
  struct Columns {};
  __device__ Unscaled(const QkvScales&, int, int) {}
  __device__ Columns of_columns(int) const { return {}; }
  __device__ void finish(float (&)[8], const Columns&, int) const {}
};

struct Fp8Scales {
  // Of 8 neighbouring columns: what is left to multiply once the blocks are summed.
  struct Columns {
    float of[8];
  };

  const QkvScales& scales;
  const float* x[2];  // of the two tokens; tokens past the end use the last one's

  __device__ Fp8Scales(const QkvScales& scales, int token, int tokens)
      : scales(scales),
        x{scales.x + min(token, tokens - 1) * scales.x_token_stride,
          scales.x + min(token + 8, tokens - 1) * scales.x_token_stride} {}

  // What the sum over a block of K is multiplied by, for the token's part.
  __device__ float of_tokens(int half, int block) const {
    return scales.x_by_block ? __ldg(x[half] + block * scales.x_block_stride) : 1.0f;
  }
  __device__ Columns of_columns(int column) const {
    if (scales.weight_by_block) return {{1, 1, 1, 1, 1, 1, 1, 1}};
    const float* from = scales.weight + column * scales.weight_row_stride;
    if (scales.weight_row_stride == 1 && reinterpret_cast<std::uintptr_t>(from) % 16 == 0) {
      const float4 low = __ldg(reinterpret_cast<const float4*>(from));
      const float4 high = __ldg(reinterpret_cast<const float4*>(from) + 1);
      return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
    }
    Columns columns;
#pragma unroll
    for (int i = 0; i < 8; ++i) columns.of[i] = __ldg(from + i * scales.weight_row_stride);
    return columns;
  }
  __device__ void finish(float (&run)[8], const Columns& columns, int half) const {
    const float of_token = scales.x_by_block ? 1.0f : __ldg(x[half]);
#pragma unroll
    for (int i = 0; i < 8; ++i) run[i] *= of_token * columns.of[i];
  }
};

// Block scales of the weight rows of a tile: it touches at most two blocks of 128 rows.
struct WeightBlockScales {
  const float* first;
  const float* second;
  std::int64_t stride;
  int second_group;  // first group of 32 columns that belongs to the second block
  bool by_block;

  __device__ WeightBlockScales(const QkvScales& scales, int columns, int column)
      : first(scales.weight + column / 128 * scales.weight_row_stride),
        second(scales.weight +
               min(column / 128 + 1, (columns - 1) / 128) * scales.weight_row_stride),
        stride(scales.weight_block_stride),
        second_group((128 - column % 128) / 32),
        by_block(scales.weight_by_block) {}

  __device__ float2 of_block(int block) const {
    if (!by_block) return {1.0f, 1.0f};
    return {__ldg(first + block * stride), __ldg(second + block * stride)};
  }
};

}  // namespace quire::cuda::hopper
