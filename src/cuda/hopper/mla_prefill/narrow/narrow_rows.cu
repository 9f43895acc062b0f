// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/mla_prefill/narrow/narrow_rows.h"

#include "cuda/hopper/flash_attention/prefill/narrow/flip_block.cuh"
#include "cuda/rows/any_eight.cuh"
#include "cuda/runtime/launch.h"
#include "cuda/tile/store_run.cuh"

namespace quire::cuda::hopper {
namespace {

constexpr int kThreads = 256;
constexpr int kColumns = 128;                // of K and of V
constexpr int kVectors = kColumns / kEight;  // of a row's K or V, a thread each
constexpr int kRope = 64;

__device__ inline uint2 round_eight_to_e4m3(const std::byte* from) {
  float values[kEight];
  load_eight(from, DType::bf16, values);
  return pack_fp8(values, __NV_E4M3);
}

// K of 128 rows as it stands, V of them into shared memory.
__device__ inline void round_rows(const NarrowRowsParams& params, int head, int first, int end,
                                  std::uint32_t (&values)[kFlippedKeys][kFlippedWords]) {
#pragma unroll 4
  for (int at = static_cast<int>(threadIdx.x); at < kFlippedKeys * kVectors; at += kThreads) {
    const int key = at / kVectors;
    const int vector = at % kVectors;
    const int row = first + key;
    uint2 value{};
    if (row < end) {
      const std::byte* from = params.projected + row * params.row_bytes + head * params.head_bytes +
                              vector * (2 * kEight);
      *reinterpret_cast<uint2*>(params.narrow_keys +
                                (std::int64_t{head} * params.rows + row) * kColumns +
                                vector * kEight) = round_eight_to_e4m3(from);
      value = round_eight_to_e4m3(from + 2 * kColumns);
    }
    const int place = 4 * flipped_place(key, vector / 2) + vector % 2 * 2;
    *reinterpret_cast<uint2*>(&values[key][place]) = value;
  }
}

__device__ inline void round_rope(const NarrowRowsParams& params, int first, int end) {
  for (int at = static_cast<int>(threadIdx.x); at < kFlippedKeys * (kRope / kEight);
       at += kThreads) {
    const std::int64_t vector = std::int64_t{first} * (kRope / kEight) + at;
    if (first + at / (kRope / kEight) >= end) return;
    *reinterpret_cast<uint2*>(params.narrow_rope + vector * kEight) =
        round_eight_to_e4m3(params.rope + vector * (2 * kEight));
  }
}

// 128 rows of one head.
__global__ void __launch_bounds__(kThreads)
    narrow_rows(const __grid_constant__ NarrowRowsParams params) {
  __shared__ alignas(16) std::uint32_t values[kFlippedKeys][kFlippedWords];
  const auto first = static_cast<int>(blockIdx.x) * kFlippedKeys;
  const auto head = static_cast<int>(blockIdx.y);
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
  const int end = min(max(*params.live_rows, 0), params.rows);
  if (first >= end) return;
  if (head == 0) round_rope(params, first, end);
  round_rows(params, head, first, end, values);
  __syncthreads();
  // Eight neighbours write groups of 16 rows; the buffer may end between them.
  if (first + 16 * static_cast<int>(threadIdx.x % 8) >= params.rows) return;
  store_flipped(values, params.narrow_values + std::int64_t{head} * kColumns * params.rows + first,
                params.rows);
}

}  // namespace

void launch_narrow_rows(const NarrowRowsParams& params, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((params.rows + kFlippedKeys - 1) / kFlippedKeys);
  launch(narrow_rows,
         {.grid = dim3(blocks, static_cast<unsigned>(params.heads)),
          .block = dim3(kThreads),
          .overlaps_previous = true},
         stream, params);
}

}  // namespace quire::cuda::hopper
