// SPDX-License-Identifier: Apache-2.0
// Dot products of four bytes per 32-bit lane, added to i32 sums: weights times int8 activations.
//
//   dot_codes    weights are codes 0 … 15
//   dot_numbers  weights are i8; what is added is the product plus kNumberOffset times the sum of
//                the activations, which the caller takes off again
#pragma once

#include "cpu/simd/convert.h"

#if defined(__SSSE3__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace quire::cpu::QUIRE_CPU_TARGET {

using I32Tag = hn::RebindToSigned<F32Tag>;
using I32Vector = hn::Vec<I32Tag>;

#if defined(__AVX512VNNI__)
inline constexpr int kNumberOffset = 128;  // VPDPBUSD takes unsigned weights
// In assembly, as GCC copies the accumulators of a loop of intrinsics twice a round: a third of its instructions.
inline I32Vector dot_codes(I32Vector sums, U32Vector weights, U32Vector x) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sums.raw) : "v"(weights.raw), "v"(x.raw));
  return sums;
}
inline I32Vector dot_numbers(I32Vector sums, U32Vector weights, U32Vector x) {
  return dot_codes(sums, U32Vector{_mm512_xor_si512(weights.raw, _mm512_set1_epi32(-0x7f7f7f80))},
                   x);
}
#elif defined(__AVX2__)
inline constexpr int kNumberOffset = 0;
// Pairs of products stay below 2^15: 2 · 15 · 127, and 2 · 128 · 127.
inline I32Vector dot_codes(I32Vector sums, U32Vector weights, U32Vector x) {
  const __m256i pairs = _mm256_maddubs_epi16(weights.raw, x.raw);
  return I32Vector{_mm256_add_epi32(sums.raw, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))};
}
inline I32Vector dot_numbers(I32Vector sums, U32Vector weights, U32Vector x) {
  return dot_codes(sums, U32Vector{_mm256_abs_epi8(weights.raw)},
                   U32Vector{_mm256_sign_epi8(x.raw, weights.raw)});
}
#elif defined(__SSSE3__)
inline constexpr int kNumberOffset = 0;
inline I32Vector dot_codes(I32Vector sums, U32Vector weights, U32Vector x) {
  const __m128i pairs = _mm_maddubs_epi16(weights.raw, x.raw);
  return I32Vector{_mm_add_epi32(sums.raw, _mm_madd_epi16(pairs, _mm_set1_epi16(1)))};
}
inline I32Vector dot_numbers(I32Vector sums, U32Vector weights, U32Vector x) {
  return dot_codes(sums, U32Vector{_mm_abs_epi8(weights.raw)},
                   U32Vector{_mm_sign_epi8(x.raw, weights.raw)});
}
#elif defined(__ARM_NEON)
inline constexpr int kNumberOffset = 0;
inline I32Vector dot_numbers(I32Vector sums, U32Vector weights, U32Vector x) {
  const int8x16_t w = vreinterpretq_s8_u32(weights.raw);
  const int8x16_t a = vreinterpretq_s8_u32(x.raw);
#if defined(__ARM_FEATURE_DOTPROD)
  return I32Vector(vdotq_s32(sums.raw, w, a));
#else
  const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(a));
  const int16x8_t high = vmull_s8(vget_high_s8(w), vget_high_s8(a));
  // A pair of products fits: 128 · 127 twice is less than 2^15.
  return I32Vector(vpadalq_s16(sums.raw, vpaddq_s16(low, high)));
#endif
}
inline I32Vector dot_codes(I32Vector sums, U32Vector weights, U32Vector x) {
  return dot_numbers(sums, weights, x);
}
#else
inline constexpr int kNumberOffset = 0;
inline I32Vector dot_numbers(I32Vector sums, U32Vector weights, U32Vector x) {
  const I32Tag i32;
  const auto byte = [](U32Vector bytes, int place) {
    const I32Vector top = hn::BitCast(I32Tag(), hn::ShiftLeftSame(bytes, 24 - 8 * place));
    return hn::ShiftRight<24>(top);
  };
  for (int place = 0; place < 4; ++place) {
    sums = hn::Add(sums, hn::Mul(byte(weights, place), byte(x, place)));
  }
  static_cast<void>(i32);
  return sums;
}
inline I32Vector dot_codes(I32Vector sums, U32Vector weights, U32Vector x) {
  return dot_numbers(sums, weights, x);
}
#endif

}  // namespace quire::cpu::QUIRE_CPU_TARGET
