// SPDX-License-Identifier: Apache-2.0
// A block of V of e4m3, transposed on its way from shared memory.
#pragma once

#include "cuda/common/prefill_attention/fp8/transpose_values.h"

namespace quire::cuda {

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

}  // namespace quire::cuda
