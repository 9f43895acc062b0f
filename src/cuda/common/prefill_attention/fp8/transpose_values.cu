// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/prefill_attention/fp8/transpose_block.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRowChunks = kTransposedColumns / 16;

// Keys of the block into shared memory.
__device__ inline void load_block(const TransposeParams& params, int sequence, int head,
                                  int first_key, int num_keys,
                                  std::uint32_t (&rows)[kTransposedKeys][kTransposedWords]) {
#pragma unroll
  for (int k = 0; k < kTransposedKeys * kRowChunks / kThreads; ++k) {
    const int at = k * kThreads + static_cast<int>(threadIdx.x);
    const int key = at / kRowChunks;
    const int chunk = at % kRowChunks;
    uint4 words{};
    if (first_key + key < num_keys) {
      const std::byte* row = row_of(params.values, sequence, first_key + key, head);
      if (row != nullptr) words = __ldg(reinterpret_cast<const uint4*>(row) + chunk);
    }
    *reinterpret_cast<uint4*>(&rows[key][4 * transposed_place(key, chunk)]) = words;
  }
}

// A block of keys of one KV head.
__global__ void __launch_bounds__(kThreads)
    transpose_values_kernel(const __grid_constant__ TransposeParams params) {
  cudaTriggerProgrammaticLaunchCompletion();
  __shared__ alignas(16) std::uint32_t rows[kTransposedKeys][kTransposedWords];
  const auto head = static_cast<int>(blockIdx.x);
  const auto block = static_cast<int>(blockIdx.y);
  const auto sequence = static_cast<int>(blockIdx.z);
  const auto tokens =
      static_cast<int>(params.row_offsets[sequence + 1] - params.row_offsets[sequence]);
  const auto position = static_cast<int>(params.values.cache_lengths[sequence]);
  const int num_keys = position + tokens;
  const int first_key = block * kTransposedKeys;
  const int first_seen = params.mask.of(position, num_keys).first;
  if (tokens == 0 || first_key >= num_keys || first_key + kTransposedKeys <= first_seen) return;
  load_block(params, sequence, head, first_key, num_keys, rows);
  __syncthreads();
  const std::int64_t at =
      (std::int64_t{sequence} * params.blocks + block) * params.values.num_heads + head;
  store_transposed(rows, params.transposed + at * kTransposedKeys * kTransposedColumns,
                   kTransposedKeys);
}

}  // namespace

void transpose_values(const TransposeParams& params, cudaStream_t stream) {
  launch(
      transpose_values_kernel,
      {.grid = dim3(static_cast<unsigned>(params.part.heads), static_cast<unsigned>(params.blocks),
                    static_cast<unsigned>(params.part.sequences)),
       .block = dim3(kThreads)},
      stream, params);
}

}  // namespace quire::cuda
