// SPDX-License-Identifier: Apache-2.0
// What a block of head_matmul.cu holds in shared memory.
#pragma once

#include <cstdint>

#include "cuda/common/mla/head_matmul.h"

namespace quire::cuda {

inline constexpr int kMatmulTile = 64;    // rows, and outputs
inline constexpr int kMatmulChunk = 128;  // columns
inline constexpr int kMatmulThreads = 128;
inline constexpr int kMatmulPad = 8;  // rows then begin in different banks

// 16-bit numbers: bf16; with e4m3 weights f16, in which numbers of e4m3 are exact and one conversion
// for two.
struct MatmulX {
  std::uint16_t rows[kMatmulTile][kMatmulChunk + kMatmulPad];
  float scales[kMatmulTile];
};

// [output][column], or [column][output] where outputs are what is contiguous in memory.
union MatmulW {
  std::uint16_t straight[kMatmulTile][kMatmulChunk + kMatmulPad];
  std::uint16_t turned[kMatmulChunk][kMatmulTile + kMatmulPad];
};

struct MatmulShared {
  MatmulW w[2];
  MatmulX x[2];  // of a single chunk of columns: the first only

  static constexpr std::size_t bytes(int chunks) {
    return 2 * sizeof(MatmulW) + (chunks > 1 ? 2 : 1) * sizeof(MatmulX);
  }
};

struct MatmulPlace {
  int head;
  std::int64_t first_row;
  std::int64_t num_rows;
  int first_output;

  // Of the tile's rows; those past them are zeros.
  __device__ int live_rows() const {
    return static_cast<int>(min(num_rows - first_row, std::int64_t{kMatmulTile}));
  }
};

using MatmulSums = float[kMatmulTile / 8][4];

__device__ inline bool is_turned(const HeadWeights& weights) {
  return weights.output_stride == 1 && weights.column_stride != 1;
}

__device__ inline void copy_sixteen(void* target, const std::byte* source, bool is_there) {
  auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(target));
  asm volatile("" : "+r"(address));  // see copy_query (sm90/mla_decode/latent/load_queries.cuh)
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(source),
               "r"(is_there ? 16 : 0)
               : "memory");
}

}  // namespace quire::cuda
