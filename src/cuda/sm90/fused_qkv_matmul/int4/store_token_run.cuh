// SPDX-License-Identifier: Apache-2.0
// Eight neighbouring columns of one token, from sums in shared memory to Q, K or V.
#pragma once

#include "cuda/common/matmul/store_columns.cuh"

namespace quire::cuda::sm90::fused_qkv_matmul {

__device__ inline void take_part(const float* from, float (&run)[8]) {  // aligned to 16 bytes
  const float4 low = reinterpret_cast<const float4*>(from)[0];
  const float4 high = reinterpret_cast<const float4*>(from)[1];
  run[0] = low.x, run[1] = low.y, run[2] = low.z, run[3] = low.w;
  run[4] = high.x, run[5] = high.y, run[6] = high.z, run[7] = high.w;
}

// `take(run)` adds up the sums, if the columns go anywhere.
template <typename Take>
__device__ void store_token_run(const QkvOutputs& outputs, int token, int column,
                                std::int64_t kv_offset, const Take& take) {
  if (column >= outputs.columns) return;
  std::byte* to = run_address(outputs, token, column, kv_offset);
  if (to == nullptr) return;
  float run[8];
  take(run);
  if (outputs.bias != nullptr) {
    add_run(outputs.bias + column * (bits(outputs.bias_dtype) / 8), outputs.bias_dtype, run);
  }
  store_run(to, column < outputs.q_dim ? outputs.q_dtype : outputs.kv_dtype, run);
}

}  // namespace quire::cuda::sm90::fused_qkv_matmul
