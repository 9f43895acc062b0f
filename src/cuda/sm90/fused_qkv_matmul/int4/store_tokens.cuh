// SPDX-License-Identifier: Apache-2.0
// From the warpgroups' sums to Q, K and V: through shared memory, where the sums over parts of K meet
// in the order of the parts, and rows become runs of neighbouring columns.
#pragma once

#include "cuda/common/matmul/store_columns.cuh"
#include "cuda/sm90/fused_qkv_matmul/int4/roles/multiply.cuh"

namespace quire::cuda::sm90::fused_qkv_matmul {

// Eight neighbouring columns of one token, from sums in shared memory to Q, K or V.

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

template <Int4Config kConfig>
__device__ void leave_sums(const Int4Sums<kConfig>& sums, typename Int4Shared<kConfig>::Sums& to) {
  const int thread = static_cast<int>(threadIdx.x % 128);
  const int row = thread / 32 * 16 + thread % 32 / 4;
  const int token = thread % 4 * 2;
#pragma unroll
  for (int i = 0; i < Int4Sums<kConfig>::kRegisters; ++i) {
    to[token + i / 4 * 8 + i % 2][row + i % 4 / 2 * 8] = sums.total[i];
  }
}

// Eight columns of one token.
template <Int4Config kConfig>
__device__ void take_run(const Int4Shared<kConfig>& shared, int row_group, int token, int row,
                         float (&run)[8]) {
#pragma unroll
  for (int part = 0; part < kConfig.k_groups; ++part) {
    float values[8];
    take_part(&shared.sums[row_group * kConfig.k_groups + part][token][row], values);
#pragma unroll
    for (int i = 0; i < 8; ++i) run[i] = part == 0 ? values[i] : run[i] + values[i];
  }
}

// By all warpgroups.
template <Int4Config kConfig>
__device__ void store_tokens(const QkvOutputs& outputs, const Int4Shared<kConfig>& shared,
                             int first_column, int first_token) {
  constexpr int kRuns = kConfig.row_groups * kPanelRows / 8;  // of a token
  const int tokens = min(kConfig.tokens, outputs.tokens - first_token);
  for (int index = static_cast<int>(threadIdx.x); index < tokens * kRuns;
       index += 128 * kConfig.warpgroups()) {
    const int token = index / kRuns;
    const int row = index % kRuns * 8;
    store_token_run(
        outputs, first_token + token, first_column + row, shared.kv_offsets[token],
        [&](float(&run)[8]) { take_run(shared, row / kPanelRows, token, row % kPanelRows, run); });
  }
}

}  // namespace quire::cuda::sm90::fused_qkv_matmul
