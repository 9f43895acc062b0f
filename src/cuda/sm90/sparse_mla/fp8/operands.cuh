// SPDX-License-Identifier: Apache-2.0
// Rows in shared memory into A operands in registers: e4m3 to f16, which is exact, then times a scale.
//
// A fetched word holds four neighbouring columns of a row where the instruction wants two and two,
// eight apart: instead of moving them, the queries' columns are permuted within groups of 16
// (load_queries.cuh). Values are fetched transposed: a row of the product is an even column, the
// eighth after it the odd one that follows.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/common/mma/fragments.cuh"
#include "cuda/common/mma/wgmma.cuh"
#include "cuda/sm90/sparse_mla/fp8/config.h"

namespace quire::cuda::sm90::sparse_mla {

// One step of 16: sums (+)= a · B.
template <typename Op, int kRegisters>
__device__ inline void multiply_step(const std::uint32_t* a, std::uint64_t b,
                                     float (&sums)[kRegisters], bool starts_sum) {
  detail::issue<Op>(a, b, sums,
                    starts_sum ? cute::SM90::GMMA::ScaleOut::Zero : cute::SM90::GMMA::ScaleOut::One,
                    std::make_index_sequence<kRegisters>{});
}

__device__ inline std::uint32_t scale_halves(std::uint32_t pair, std::uint32_t by) {
  std::uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(pair), "r"(by));
  return product;
}
__device__ inline std::uint32_t scale_bfloats(std::uint32_t pair, std::uint32_t by) {
  std::uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(pair), "r"(by));
  return product;
}

// Two e4m3 in the low and in the high half of a word, to f16. (Asked for as halves: the conversion reads
// either; a shift would cost as much again.)
__device__ inline void halves_to_f16(std::uint32_t word, std::uint32_t& low, std::uint32_t& high) {
  asm("{\n"
      ".reg .b16 l, h;\n"
      "mov.b32 {l, h}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, l;\n"
      "cvt.rn.f16x2.e4m3x2 %1, h;\n"
      "}\n"
      : "=r"(low), "=r"(high)
      : "r"(word));
}

// Where a lane's row of the four matrices stands that are fetched at a time: 16 keys, two blocks of 16
// bytes.
__device__ inline int matrix_row_offset() {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  return lane % 16 * Fp8Config::kRowStride + lane / 16 * 16;
}

// 16 keys × 32 columns: two operands, scaled row by row (low_by: row g, high_by: row g + 8; each twice).
__device__ inline void decode_keys(const std::uint32_t (&raw)[4], std::uint32_t low_by,
                                   std::uint32_t high_by, std::uint32_t* operands) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const std::uint32_t by = k % 2 == 0 ? low_by : high_by;
    std::uint32_t* operand = operands + k / 2 * 4 + k % 2;
    halves_to_f16(raw[k], operand[0], operand[2]);
    operand[0] = scale_halves(operand[0], by);
    operand[2] = scale_halves(operand[2], by);
  }
}

// 32 columns × 16 keys, transposed: two operands of 16 columns, scaled key by key (two keys each).
__device__ inline void decode_values(const std::uint32_t (&raw)[4], std::uint32_t low_by,
                                     std::uint32_t high_by, std::uint32_t* operands) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    std::uint32_t* operand = operands + k / 2 * 4 + k % 2;
    halves_to_f16(__byte_perm(raw[k / 2 * 2], raw[k / 2 * 2 + 1], k % 2 == 0 ? 0x6420 : 0x7531),
                  operand[0], operand[2]);
    operand[0] = scale_halves(operand[0], low_by);
    operand[2] = scale_halves(operand[2], high_by);
  }
}

}  // namespace quire::cuda::sm90::sparse_mla
