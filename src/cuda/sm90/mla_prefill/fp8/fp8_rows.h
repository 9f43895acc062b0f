// SPDX-License-Identifier: Apache-2.0
// Projected K and V rounded to e4m3, for the attention with products of it, where the projection has
// not done so itself.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace quire::cuda::sm90::mla_prefill {

struct Fp8RowsParams {
  const std::byte* projected = nullptr;     // bf16 [rows, heads, K | V]
  const std::int32_t* live_rows = nullptr;  // on the device: the rest is left as it is
  int rows = 0;
  int heads = 0;
  std::byte* codes = nullptr;  // [heads, rows, K | V]
};

void launch_fp8_rows(const Fp8RowsParams& params, cudaStream_t stream);

}  // namespace quire::cuda::sm90::mla_prefill
