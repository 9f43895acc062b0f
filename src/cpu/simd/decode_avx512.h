// SPDX-License-Identifier: Apache-2.0
// 32 weight numbers at a time to bf16, all exact.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "cpu/simd/tile.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

inline __m512i load_32_bytes_as_u16(const std::byte* source) {
  return _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(source)));
}

// e4m3 codes in 16-bit lanes: the exponent is rebiased in place; the eight magnitudes below 2^-6
// come from a table.
inline __m512i decode_e4m3_codes(__m512i codes) {
  const __m512i magnitude = _mm512_and_si512(codes, _mm512_set1_epi16(0x7f));
  const __m512i normal =
      _mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), _mm512_set1_epi16(120 << 7));
  const __m512i tiny = _mm512_castsi128_si512(
      _mm_setr_epi16(0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60));  // m · 2^-9
  const __mmask32 is_tiny = _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16(8));
  const __mmask32 is_nan = _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x7f));
  __m512i value = _mm512_mask_permutexvar_epi16(normal, is_tiny, magnitude, tiny);
  value = _mm512_mask_mov_epi16(value, is_nan, _mm512_set1_epi16(0x7fc0));
  const __m512i sign = _mm512_slli_epi16(_mm512_xor_si512(codes, magnitude), 8);
  return _mm512_or_si512(value, sign);
}
inline __m512i decode_32_e4m3(const std::byte* source) {
  return decode_e4m3_codes(load_32_bytes_as_u16(source));
}

// bf16 of integers whose magnitude has at most 8 bits: all exact, the upper half of an f32.
inline __m256i bf16_of_ints(__m512i ints) {
  const __m512i bits = _mm512_castps_si512(_mm512_cvtepi32_ps(ints));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16));
}
inline __m512i bf16_of_ints(__m512i first, __m512i second) {
#if defined(__AVX512BF16__)
  return reinterpret_cast<__m512i>(
      _mm512_cvtne2ps_pbh(_mm512_cvtepi32_ps(second), _mm512_cvtepi32_ps(first)));
#else
  return _mm512_inserti64x4(_mm512_castsi256_si512(bf16_of_ints(first)), bf16_of_ints(second), 1);
#endif
}

// bf16 of code − zero for each of the 16 codes.
inline __m512i code_values(int zero) {
  const __m512i codes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm512_castsi256_si512(bf16_of_ints(_mm512_sub_epi32(codes, _mm512_set1_epi32(zero))));
}

// Codes of 16 bytes, the low nibble of a byte before the high one.
inline __m512i decode_32_nibbles(__m128i source, __m512i values) {
  const __m512i bytes = _mm512_cvtepu8_epi32(source);
  const __m512i codes = _mm512_and_si512(_mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12)),
                                         _mm512_set1_epi32(0x000f000f));
  return _mm512_permutexvar_epi16(codes, values);
}

// Four words of eight codes, `stride` bytes apart (GPTQ).
inline __m128i gather_four_words(const std::byte* source, std::int64_t stride) {
  std::int32_t words[4];
  for (int i = 0; i < 4; ++i) __builtin_memcpy(&words[i], source + i * stride, sizeof(words[i]));
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(words));
}

// The nibble at `shift` of 32 words, `stride` bytes apart (AWQ).
inline __m512i decode_32_words(const std::byte* source, std::int64_t stride, int shift,
                               __m512i values) {
  std::int32_t words[32];
  for (int i = 0; i < 32; ++i) __builtin_memcpy(&words[i], source + i * stride, sizeof(words[i]));
  const __m128i by = _mm_cvtsi32_si128(shift);
  const __m256i low = _mm512_cvtepi32_epi16(_mm512_srl_epi32(_mm512_loadu_si512(words), by));
  const __m256i high = _mm512_cvtepi32_epi16(_mm512_srl_epi32(_mm512_loadu_si512(words + 16), by));
  const __m512i codes = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  return _mm512_permutexvar_epi16(_mm512_and_si512(codes, _mm512_set1_epi16(15)), values);
}

// bf16 of the sixteen numbers of a table.
inline __m512i table_values(const signed char* numbers) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(numbers));
  return _mm512_castsi256_si512(bf16_of_ints(_mm512_cvtepi8_epi32(bytes)));
}

// bf16 of code − zero for each of the 32 codes.
inline __m512i five_bit_values(int zero) {
  const __m512i codes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i first = _mm512_sub_epi32(codes, _mm512_set1_epi32(zero));
  return bf16_of_ints(first, _mm512_add_epi32(first, _mm512_set1_epi32(16)));
}

// Codes of 16 bytes, the low nibbles of all of them before the high ones, each with a fifth bit from `high`: the blocks
// of GGUF.
inline __m512i decode_32_split_codes(const std::byte* source, std::uint32_t high, __m512i values) {
  const __m256i bytes =
      _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source)));
  const __m512i low =
      _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_and_si256(bytes, _mm256_set1_epi16(15))),
                         _mm256_srli_epi16(bytes, 4), 1);
  const __m512i codes = _mm512_mask_add_epi16(low, high, low, _mm512_set1_epi16(16));
  return _mm512_permutexvar_epi16(codes, values);
}

inline __m512i decode_32_i8(const std::byte* source) {
  const auto* bytes = reinterpret_cast<const __m128i*>(source);
  return bf16_of_ints(_mm512_cvtepi8_epi32(_mm_loadu_si128(bytes)),
                      _mm512_cvtepi8_epi32(_mm_loadu_si128(bytes + 1)));
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
