// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/prefill_attention/fp8/transpose_values.h"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda {

// A block of V of e4m3, transposed on its way from shared memory.

inline constexpr int kTransposedWords = kTransposedColumns / 4;  // of a row

// Eight threads that read keys 16 apart hit different banks.
__device__ inline int transposed_place(int key, int chunk) {
  return chunk ^ (key / 16);
}

// 4 × 4 bytes: byte k of word c goes to byte c of word k.
__device__ inline void transpose(std::uint32_t (&words)[4]) {
  const std::uint32_t low01 = __byte_perm(words[0], words[1], 0x5140);
  const std::uint32_t high01 = __byte_perm(words[0], words[1], 0x7362);
  const std::uint32_t low23 = __byte_perm(words[2], words[3], 0x5140);
  const std::uint32_t high23 = __byte_perm(words[2], words[3], 0x7362);
  words[0] = __byte_perm(low01, low23, 0x5410);
  words[1] = __byte_perm(low01, low23, 0x7632);
  words[2] = __byte_perm(high01, high23, 0x5410);
  words[3] = __byte_perm(high01, high23, 0x7632);
}

// By 256 threads, from a block's rows of e4m3 in shared memory, whose chunks of 16 bytes stand at
// transposed_place(). A thread takes 16 keys of 4 columns; eight neighbours write a column's 128 bytes.
// Columns stand column_bytes apart.
__device__ inline void store_transposed(
    const std::uint32_t (&rows)[kTransposedKeys][kTransposedWords], std::byte* to,
    std::int64_t column_bytes) {
  const int group = static_cast<int>(threadIdx.x % 8);
  const int quad = static_cast<int>(threadIdx.x / 8);  // of columns
  std::uint32_t words[4][4];                           // [thread of key_at_place][column]
#pragma unroll
  for (int t = 0; t < 4; ++t) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int key = 16 * group + key_at_place(4 * t + k);
      words[t][k] = rows[key][quad ^ (4 * group)];
    }
    transpose(words[t]);
  }
#pragma unroll
  for (int column = 0; column < 4; ++column) {
    const uint4 packed =
        make_uint4(words[0][column], words[1][column], words[2][column], words[3][column]);
    *reinterpret_cast<uint4*>(to + (4 * quad + column) * column_bytes + 16 * group) = packed;
  }
}

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
