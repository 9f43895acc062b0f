// SPDX-License-Identifier: Apache-2.0
// Products of a warp by itself, for what is too little for a warpgroup.
#pragma once

#include <cstdint>

#include "quire/dtype.h"

namespace quire::cuda {

// Four squares of 8 × 8 16-bit numbers; lane i gives the address of row i % 8 of square i / 8, in shared memory.
__device__ inline void load_squares(unsigned row, std::uint32_t (&squares)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(squares[0]), "=r"(squares[1]), "=r"(squares[2]), "=r"(squares[3])
               : "r"(row)
               : "memory");
}

// sums [16][8] += a [16][16] · b [8][16]ᵀ, of bf16 or f16.
template <DType kDType>
__device__ inline void add_product(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                   std::uint32_t b1) {
  if constexpr (kDType == DType::bf16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

}  // namespace quire::cuda
