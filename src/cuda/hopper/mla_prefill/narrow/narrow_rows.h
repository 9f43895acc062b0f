// SPDX-License-Identifier: Apache-2.0
// Projected K and V, and rope columns, rounded to e4m3 for the attention with products of it: V
// transposed, since those want neighbouring keys in neighbouring bytes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace quire::cuda::hopper {

struct NarrowRowsParams {
  const std::byte* projected =
      nullptr;  // bf16 [rows, heads, K | V], in either order of rows and heads
  std::int64_t row_bytes = 0;
  std::int64_t head_bytes = 0;
  const std::byte* rope = nullptr;          // bf16 [rows, 64]
  const std::int32_t* live_rows = nullptr;  // on the device: the rest is left as it is
  int rows = 0;                             // a multiple of 16
  int heads = 0;
  std::byte* narrow_keys = nullptr;    // [heads, rows, 128]
  std::byte* narrow_values = nullptr;  // [heads, 128, rows]; 16 rows as key_at_place() has them
  std::byte* narrow_rope = nullptr;    // [rows, 64]
};

void launch_narrow_rows(const NarrowRowsParams& params, cudaStream_t stream);

}  // namespace quire::cuda::hopper
