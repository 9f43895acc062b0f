// SPDX-License-Identifier: Apache-2.0
// A warpgroup's sums: 64 rows × 256 value columns, in registers.
#pragma once

#include "cuda/common/softmax/softmax.cuh"
#include "cuda/sm90/sparse_mla/shared.cuh"

namespace quire::cuda::sm90::sparse_mla {

struct HalfSums {
  static constexpr int kColumns = SparseConfig::kHalfColumns;
  static constexpr int kPairs = SparseConfig::kHalfColumns / 8;  // of a row, in a thread
  using Product = RegisterWgmma<DType::bf16, kColumns>;

  float values[kColumns / 2];

  // sums (+)= weights · values, not waited for. `swizzle_columns`: the half of a tile, four times swizzle_column_bytes.
  template <int kWords>
  __device__ void start(std::uint32_t (&weights)[kWords], const std::byte* swizzle_columns,
                        int swizzle_column_bytes, bool starts_sum) {
    pin(weights);
    wait_is_over();
    cute::warpgroup_arrive();
    multiply_registers<Product>(
        weights, without_rank(transposed_descriptor(swizzle_columns, swizzle_column_bytes)), values,
        starts_sum);
    cute::warpgroup_commit_batch();
  }
  // Keeps the compiler from moving uses across the wait.
  __device__ void wait_is_over() { pin(values); }
  __device__ void scale(const float (&by)[2]) { scale_rows(values, by); }
  // Columns 8j + 2 (thread % 4) and the next one of the thread's row i.
  __device__ float2 pair(int i, int j) const {
    return {values[4 * j + 2 * i], values[4 * j + 2 * i + 1]};
  }
};

}  // namespace quire::cuda::sm90::sparse_mla
