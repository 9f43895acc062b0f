// SPDX-License-Identifier: Apache-2.0
// What a tile product multiplies: bf16 numbers into f32 sums (TDPBF16PS), or int8 numbers into i32
// sums (TDPBSSD).
//
// A tile of int8: [16 rows][kDepth]. B tile: [kDepth / 4][16 columns][4]. Sixteen rows of B are 64 k; where
// scales change after 32, both tiles are half as deep.
#pragma once

#include "cpu/simd/tile_bf16_amx.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

template <int kC, int kA, int kB> inline void tile_multiply_int8() {
  __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}

struct AmxBf16Numbers {
  using Element = std::uint16_t;
  using Sum = float;
  static constexpr int kDepth = 32;

  template <int kC, int kA, int kB> static void multiply() { tile_multiply_bf16<kC, kA, kB>(); }
  static __m512 load_sums(const Sum* sums) { return _mm512_loadu_ps(sums); }
};

template <int kStep> struct AmxInt8Numbers {
  using Element = std::int8_t;
  using Sum = std::int32_t;
  static constexpr int kDepth = kStep;

  template <int kC, int kA, int kB> static void multiply() { tile_multiply_int8<kC, kA, kB>(); }
  static __m512 load_sums(const Sum* sums) { return _mm512_cvtepi32_ps(_mm512_loadu_si512(sums)); }
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
