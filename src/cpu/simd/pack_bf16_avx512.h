// SPDX-License-Identifier: Apache-2.0
// Packing for the engines that multiply pairs of bf16 (AMX, VDPBF16PS): a pair (k, k+1) is one
// 32-bit lane, and a block is 16 vectors of 32 elements, transposed as 16 × 16 pairs.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "cpu/simd/transpose_avx512.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

inline constexpr int kPairBlock = 32;  // elements of a vector that fill a register

// Lanes of [k, k + 32) that lie before the end.
inline __mmask32 block_mask(std::int64_t k, std::int64_t depth) {
  const std::int64_t left = depth - k;
  return left >= kPairBlock ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
}

// 32 elements from k on; zeros past the end and for a null vector.
inline __m512i load_block(const std::uint16_t* vector, std::int64_t k, std::int64_t depth) {
  if (vector == nullptr) return _mm512_setzero_si512();
  return _mm512_maskz_loadu_epi16(block_mask(k, depth), vector + k);
}

inline __m512i load_block_f32(const float* vector, std::int64_t k, std::int64_t depth) {
  const __mmask32 mask = block_mask(k, depth);
  const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), vector + k);
  const __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), vector + k + 16);
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

// Vectors [first, first + 16) of `num_vectors` at [k, k + 32), as pairs × vectors.
inline void load_transposed(const std::uint16_t* const* vectors, int first, int num_vectors,
                            std::int64_t k, std::int64_t depth, __m512i (&block)[16]) {
  for (int i = 0; i < 16; ++i) {
    block[i] = load_block(first + i < num_vectors ? vectors[first + i] : nullptr, k, depth);
  }
  transpose_16x16(block);
}

// Columns [column, column + 16) of rows k and k + 1, interleaved: pairs of one B row.
inline __m512i interleave_rows(const std::uint16_t* even, const std::uint16_t* odd, int column,
                               int num_columns) {
  const int left = num_columns - column;
  const auto mask = static_cast<__mmask16>(left >= 16 ? 0xffff : left > 0 ? (1 << left) - 1 : 0);
  const __m512i low = even == nullptr
                          ? _mm512_setzero_si512()
                          : _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, even + column));
  const __m512i high = odd == nullptr
                           ? _mm512_setzero_si512()
                           : _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, odd + column));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
