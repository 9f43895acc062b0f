// SPDX-License-Identifier: Apache-2.0
// Rows of 16-bit numbers and their angles on their way, in slots of shared memory that one thread
// fills and reads: two rows deep without a register for any of it.
#pragma once

#include "cuda/hopper/index_rows/row_steps.cuh"

namespace quire::cuda::hopper {

// 16 bytes. The compiler must not see what the address is made of (latent_attention/load_queries.cuh).
__device__ inline void copy_to_slot(uint4* slot, const std::byte* from) {
  auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(slot));
  asm volatile("" : "+r"(address));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}
__device__ inline void commit_slot() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// All but the slot committed last are full.
__device__ inline void wait_for_slot() {
  asm volatile("cp.async.wait_group 1;" ::: "memory");
}

template <typename Config> struct RowSlots {
  static constexpr int kDepth = 2;
  static constexpr int kStep = Config::kLanes * kEight;  // columns between a lane's vectors

  uint4 x[kDepth][kRowVectors][Config::kThreads];
  uint4 angles[kDepth][kTurnedVectors][2][Config::kThreads];  // f32 takes two

  // from: at the lane's first column.
  __device__ void fetch_row(int slot, const std::byte* from) {
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
      copy_to_slot(&x[slot][v][threadIdx.x], from + v * kStep * (bits(Config::kX) / 8));
    }
  }
  __device__ void take_row(int slot, uint4 (&raw)[kRowVectors]) const {
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) raw[v] = x[slot][v][threadIdx.x];
  }

  // As load_angles() has them; position -1: the row is nobody's.
  __device__ void fetch_angles(int slot, const IndexRowParams& params, int lane,
                               std::int64_t position) {
    if (params.freqs == nullptr || position < 0) return;
    const std::int64_t row = position < params.max_pos ? position : params.max_pos - 1;
    const std::byte* freqs = params.freqs + row * params.freqs_stride * params.freqs_size;
    const int first = params.interleaved ? lane : 2 * lane;  // vector of freqs_cis
    const int step = params.interleaved ? Config::kLanes : 1;
#pragma unroll
    for (int v = 0; v < kTurnedVectors; ++v) {
      const std::byte* from = freqs + (first + v * step) * kEight * params.freqs_size;
      copy_to_slot(&angles[slot][v][0][threadIdx.x], from);
      if (params.freqs_dtype == DType::f32) {
        copy_to_slot(&angles[slot][v][1][threadIdx.x], from + sizeof(uint4));
      }
    }
  }
  __device__ void take_angles(int slot, DType dtype, RowAngles& values) const {
#pragma unroll
    for (int v = 0; v < kTurnedVectors; ++v) {
      const uint4 low = angles[slot][v][0][threadIdx.x];
      if (dtype == DType::f32) {
        const uint4 high = angles[slot][v][1][threadIdx.x];
        Eight<DType::f32>::decode(
            {reinterpret_cast<const float4&>(low), reinterpret_cast<const float4&>(high)},
            values[v]);
      } else if (dtype == DType::bf16) {
        Eight<DType::bf16>::decode(low, values[v]);
      } else {
        Eight<DType::f16>::decode(low, values[v]);
      }
    }
  }
};

}  // namespace quire::cuda::hopper
