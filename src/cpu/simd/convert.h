// SPDX-License-Identifier: Apache-2.0
// Vectors and rows of f32, from and to the element types of tensors and cache rows: f32, f16, bf16,
// fp8, i8, i4 and u4. Exact when widening; one rounding to nearest even when narrowing, fp8 and
// integers saturating, NaN kept (0 in integers), as quire/element.h has it.
#pragma once

#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>
#include "cpu/simd/tile.h"
#include "quire/dtype.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

namespace hn = hwy::HWY_NAMESPACE;

using F32Tag = hn::ScalableTag<float>;
using F32Vector = hn::Vec<F32Tag>;
using U32Tag = hn::RebindToUnsigned<F32Tag>;
using U32Vector = hn::Vec<U32Tag>;

inline constexpr int kF32Lanes = static_cast<int>(hn::MaxLanes(F32Tag()));

// Vectors at any address. As bytes: a lane of 16 or 32 bits at an odd address is undefined, whatever the instruction
// could do.
template <typename Tag> inline hn::Vec<Tag> load_anywhere(Tag tag, const void* source) {
  const hn::Repartition<std::uint8_t, Tag> u8;
  return hn::BitCast(tag, hn::LoadU(u8, static_cast<const std::uint8_t*>(source)));
}
template <typename Tag> inline void store_anywhere(hn::Vec<Tag> value, Tag, void* target) {
  const hn::Repartition<std::uint8_t, Tag> u8;
  hn::StoreU(hn::BitCast(u8, value), u8, static_cast<std::uint8_t*>(target));
}

// A float format of at most 16 bits: its field sizes, and three magnitude codes.
struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
  std::uint32_t special;  // from here on infinity or NaN
  std::uint32_t largest;  // what too large a number becomes
  std::uint32_t nan;

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr int sign_bit() const { return exponent_bits + mantissa_bits; }
  constexpr int shift() const { return 23 - mantissa_bits; }        // to f32's mantissa
  constexpr std::uint32_t rebias() const { return 127u - bias(); }  // to f32's exponent
  constexpr std::uint32_t first_normal() const { return 1u << mantissa_bits; }
};

inline constexpr SmallFloat kF16{5, 10, 0x7c00, 0x7c00, 0x7e00};
inline constexpr SmallFloat kE4M3{4, 3, 0x7f, 0x7e, 0x7f};
inline constexpr SmallFloat kE5M2{5, 2, 0x7c, 0x7b, 0x7e};

inline F32Vector f32_power_of_two(int exponent) {
  const U32Tag u32;
  return hn::BitCast(F32Tag(), hn::Set(u32, static_cast<std::uint32_t>(exponent + 127) << 23));
}

// Codes in 32-bit lanes. Subnormals go through (1 + m) · 2^e − 2^e: no f32 subnormal, which some
// processors treat slowly or as zero, ever stands in a register.
template <SmallFloat kFormat> inline F32Vector decode_small_float(U32Vector codes) {
  const U32Tag u32;
  const F32Tag f32;
  const U32Vector magnitude = hn::And(codes, hn::Set(u32, (1u << kFormat.sign_bit()) - 1u));
  const U32Vector bits = hn::ShiftLeft<kFormat.shift()>(magnitude);
  const U32Vector normal = hn::Add(bits, hn::Set(u32, kFormat.rebias() << 23));
  const F32Vector tiny = f32_power_of_two(1 - kFormat.bias());
  const U32Vector raised = hn::Add(bits, hn::Set(u32, (kFormat.rebias() + 1) << 23));
  const F32Vector subnormal = hn::Sub(hn::BitCast(f32, raised), tiny);
  const auto is_small = hn::Lt(magnitude, hn::Set(u32, kFormat.first_normal()));
  U32Vector result = hn::IfThenElse(is_small, hn::BitCast(u32, subnormal), normal);
  const auto is_special = hn::Gt(magnitude, hn::Set(u32, kFormat.special - 1u));
  result = hn::IfThenElse(is_special, hn::Or(bits, hn::Set(u32, 0x7f800000u)), result);
  const U32Vector sign = hn::ShiftLeft<31 - kFormat.sign_bit()>(hn::Xor(codes, magnitude));
  return hn::BitCast(f32, hn::Or(result, sign));
}

template <SmallFloat kFormat> inline U32Vector encode_small_float(F32Vector value) {
  const U32Tag u32;
  const F32Tag f32;
  const U32Vector bits = hn::BitCast(u32, value);
  const U32Vector magnitude = hn::And(bits, hn::Set(u32, 0x7fffffffu));
  const U32Vector odd = hn::And(hn::ShiftRight<kFormat.shift()>(magnitude), hn::Set(u32, 1u));
  const U32Vector half = hn::Set(u32, (1u << (kFormat.shift() - 1)) - 1u);
  const U32Vector rounded = hn::ShiftRight<kFormat.shift()>(hn::Add(magnitude, hn::Add(half, odd)));
  const U32Vector normal =
      hn::Sub(rounded, hn::Set(u32, kFormat.rebias() << kFormat.mantissa_bits));
  // The sum with this power of two rounds at the subnormals' unit; its low bits are the code.
  const F32Vector unit = f32_power_of_two(24 - kFormat.bias() - kFormat.mantissa_bits);
  const U32Vector subnormal =
      hn::Sub(hn::BitCast(u32, hn::Add(hn::BitCast(f32, magnitude), unit)), hn::BitCast(u32, unit));
  const std::uint32_t smallest = static_cast<std::uint32_t>(128 - kFormat.bias()) << 23;
  const auto is_small = hn::Lt(magnitude, hn::Set(u32, smallest));
  const U32Vector limit = hn::Set(u32, kFormat.largest);
  U32Vector code = hn::IfThenElse(is_small, subnormal, hn::Min(normal, limit));
  const auto is_nan = hn::Gt(magnitude, hn::Set(u32, 0x7f800000u));
  code = hn::IfThenElse(is_nan, hn::Set(u32, kFormat.nan), code);
  const U32Vector sign = hn::ShiftRight<31 - kFormat.sign_bit()>(hn::Xor(bits, magnitude));
  return hn::Or(code, sign);
}

inline U32Vector encode_bf16(F32Vector value) {
  const U32Tag u32;
  const U32Vector bits = hn::BitCast(u32, value);
  const U32Vector odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u32, 1u));
  const U32Vector rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(u32, 0x7fffu))));
  const U32Vector quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(u32, 0x40u));
  const auto is_nan = hn::Gt(hn::And(bits, hn::Set(u32, 0x7fffffffu)), hn::Set(u32, 0x7f800000u));
  return hn::IfThenElse(is_nan, quiet, rounded);
}

template <typename Narrow> inline U32Vector widen_codes(const void* source) {
  const hn::Rebind<Narrow, U32Tag> narrow;
  return hn::PromoteTo(U32Tag(), load_anywhere(narrow, source));
}

template <typename Narrow> inline void narrow_codes(U32Vector codes, void* target) {
  const hn::Rebind<Narrow, U32Tag> narrow;
  const hn::RebindToSigned<U32Tag> i32;
  store_anywhere(hn::DemoteTo(narrow, hn::BitCast(i32, codes)), narrow, target);
}

// kF32Lanes elements at any address, as f32; and two vectors of e4m3 numbers, in units of kE4m3Unit.
#if defined(__aarch64__)
// The bits of a code are those of a half 2^8 times smaller, one place further left, and halves are converted exactly: half
// of what decode_small_float() takes.
inline constexpr float kE4m3Unit = 256.0f;
inline float16x8_t halves_of_e4m3(uint16x8_t codes) {
  const int16x8_t moved = vshrq_n_s16(vreinterpretq_s16_u16(vshlq_n_u16(codes, 8)), 1);
  const uint16x8_t magnitude = vandq_u16(codes, vdupq_n_u16(0x7f));
  const uint16x8_t nan = vandq_u16(vceqq_u16(magnitude, vdupq_n_u16(0x7f)), vdupq_n_u16(0x7e00));
  const uint16x8_t half = vandq_u16(vreinterpretq_u16_s16(moved), vdupq_n_u16(0xbfff));
  return vreinterpretq_f16_u16(vorrq_u16(half, nan));
}
inline void load_e4m3_units(const void* source, F32Vector (&units)[2]) {
  const uint8x8_t codes = vld1_u8(static_cast<const std::uint8_t*>(source));
  const float16x8_t halves = halves_of_e4m3(vmovl_u8(codes));
  units[0] = F32Vector{vcvt_f32_f16(vget_low_f16(halves))};
  units[1] = F32Vector{vcvt_f32_f16(vget_high_f16(halves))};
}
inline F32Vector load_e4m3(const void* source) {
  std::uint32_t four;
  __builtin_memcpy(&four, source, sizeof(four));
  const float16x8_t halves = halves_of_e4m3(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four))));
  return F32Vector{vmulq_n_f32(vcvt_f32_f16(vget_low_f16(halves)), kE4m3Unit)};
}
#elif defined(__F16C__)
// The same by VCVTPH2PS, which takes subnormal halves whatever the modes of the thread are.
inline constexpr float kE4m3Unit = 256.0f;
#if defined(__AVX512BW__)
inline __m256i load_bytes_as_words(const void* source) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(source)));
}
inline F32Vector widen_halves(__m256i halves) {
  return F32Vector{_mm512_cvtph_ps(halves)};
}
inline F32Vector load_f16(const void* source) {
  return widen_halves(_mm256_loadu_si256(static_cast<const __m256i*>(source)));
}
inline F32Vector load_e5m2(const void* source) {
  return widen_halves(_mm256_slli_epi16(load_bytes_as_words(source), 8));
}
inline F32Vector load_e4m3(const void* source) {
  const __m256i codes = load_bytes_as_words(source);
  const __m256i moved = _mm256_srai_epi16(_mm256_slli_epi16(codes, 8), 1);
  const __m256i half = _mm256_and_si256(moved, _mm256_set1_epi16(static_cast<short>(0xbfff)));
  const __m256i without_sign = _mm256_or_si256(codes, _mm256_set1_epi16(0x80));
  const __mmask16 is_nan = _mm256_cmpeq_epi16_mask(without_sign, _mm256_set1_epi16(0xff));
  // Infinity's exponent in place of its own: a NaN that keeps its sign.
  const __m256i number = _mm256_mask_add_epi16(half, is_nan, half, _mm256_set1_epi16(0x4000));
  return hn::Mul(widen_halves(number), hn::Set(F32Tag(), kE4m3Unit));
}
inline void load_e4m3_units(const void* source, F32Vector (&units)[2]) {
  const __m512i codes =
      _mm512_cvtepu8_epi16(_mm256_loadu_si256(static_cast<const __m256i*>(source)));
  const __m512i moved = _mm512_srai_epi16(_mm512_slli_epi16(codes, 8), 1);
  const __m512i half = _mm512_and_si512(moved, _mm512_set1_epi16(static_cast<short>(0xbfff)));
  const __m512i without_sign = _mm512_or_si512(codes, _mm512_set1_epi16(0x80));
  const __mmask32 is_nan = _mm512_cmpeq_epi16_mask(without_sign, _mm512_set1_epi16(0xff));
  const __m512i number = _mm512_mask_add_epi16(half, is_nan, half, _mm512_set1_epi16(0x4000));
  units[0] = widen_halves(_mm512_castsi512_si256(number));
  units[1] = widen_halves(_mm512_extracti64x4_epi64(number, 1));
}
#else
inline __m128i load_bytes_as_words(const void* source) {
  return _mm_cvtepu8_epi16(_mm_loadl_epi64(static_cast<const __m128i*>(source)));
}
inline F32Vector widen_halves(__m128i halves) {
  return F32Vector{_mm256_cvtph_ps(halves)};
}
inline F32Vector load_f16(const void* source) {
  return widen_halves(_mm_loadu_si128(static_cast<const __m128i*>(source)));
}
inline F32Vector load_e5m2(const void* source) {
  return widen_halves(_mm_slli_epi16(load_bytes_as_words(source), 8));
}
inline F32Vector load_e4m3(const void* source) {
  const __m128i codes = load_bytes_as_words(source);
  const __m128i moved = _mm_srai_epi16(_mm_slli_epi16(codes, 8), 1);
  const __m128i half = _mm_and_si128(moved, _mm_set1_epi16(static_cast<short>(0xbfff)));
  const __m128i without_sign = _mm_or_si128(codes, _mm_set1_epi16(0x80));
  const __m128i is_nan = _mm_cmpeq_epi16(without_sign, _mm_set1_epi16(0xff));
  const __m128i number = _mm_or_si128(half, _mm_srli_epi16(is_nan, 1));  // NaN keeps its sign
  return hn::Mul(widen_halves(number), hn::Set(F32Tag(), kE4m3Unit));
}
inline void load_e4m3_units(const void* source, F32Vector (&units)[2]) {
  const __m256i codes = _mm256_cvtepu8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(source)));
  const __m256i moved = _mm256_srai_epi16(_mm256_slli_epi16(codes, 8), 1);
  const __m256i half = _mm256_and_si256(moved, _mm256_set1_epi16(static_cast<short>(0xbfff)));
  const __m256i without_sign = _mm256_or_si256(codes, _mm256_set1_epi16(0x80));
  const __m256i is_nan = _mm256_cmpeq_epi16(without_sign, _mm256_set1_epi16(0xff));
  const __m256i number = _mm256_or_si256(half, _mm256_srli_epi16(is_nan, 1));
  units[0] = widen_halves(_mm256_castsi256_si128(number));
  units[1] = widen_halves(_mm256_extracti128_si256(number, 1));
}
#endif
#else
inline constexpr float kE4m3Unit = 1.0f;
inline F32Vector load_e4m3(const void* source) {
  return decode_small_float<kE4M3>(widen_codes<std::uint8_t>(source));
}
inline void load_e4m3_units(const void* source, F32Vector (&units)[2]) {
  units[0] = load_e4m3(source);
  units[1] = load_e4m3(static_cast<const std::uint8_t*>(source) + kF32Lanes);
}
#endif
#if !defined(__F16C__)
inline F32Vector load_f16(const void* source) {
  return decode_small_float<kF16>(widen_codes<std::uint16_t>(source));
}
inline F32Vector load_e5m2(const void* source) {
  return decode_small_float<kE5M2>(widen_codes<std::uint8_t>(source));
}
#endif

// kF32Lanes codes of 4 bits, the even ones in the low halves of bytes, each in the upper bits of its lane.
inline U32Vector load_nibbles(const void* source) {
  static_assert(kF32Lanes % 4 == 0 && kF32Lanes <= 16);
  constexpr std::uint32_t kCodesOfWord = 8;
  const U32Tag u32;
  std::uint32_t words[2] = {};
  __builtin_memcpy(words, source, kF32Lanes / 2);
  const U32Vector lane = hn::Iota(u32, std::uint32_t{0});
  U32Vector word = hn::Set(u32, words[0]);
  if constexpr (kF32Lanes > 8) {
    const auto is_first = hn::Lt(lane, hn::Set(u32, kCodesOfWord));
    word = hn::IfThenElse(is_first, word, hn::Set(u32, words[1]));
  }
  const U32Vector place = hn::And(lane, hn::Set(u32, kCodesOfWord - 1));
  return hn::Shl(word, hn::Sub(hn::Set(u32, std::uint32_t{28}), hn::ShiftLeft<2>(place)));
}

// kF32Lanes codes of 4 bits to kF32Lanes / 2 bytes.
inline void store_nibbles(U32Vector codes, void* target) {
  const hn::Rebind<std::uint8_t, U32Tag> u8;
  alignas(16) std::uint8_t bytes[16] = {};
  hn::StoreU(hn::TruncateTo(u8, codes), u8, bytes);
  for (int i = 0; i < kF32Lanes; i += 2) {
    bytes[i / 2] = static_cast<std::uint8_t>(bytes[i] | bytes[i + 1] << 4);
  }
  __builtin_memcpy(target, bytes, kF32Lanes / 2);
}

template <DType kType> inline F32Vector load_as_f32(const void* source) {
  const F32Tag f32;
  if constexpr (kType == DType::f32) {
    return load_anywhere(f32, source);
  } else if constexpr (kType == DType::bf16) {
    return hn::BitCast(f32, hn::ShiftLeft<16>(widen_codes<std::uint16_t>(source)));
  } else if constexpr (kType == DType::f16) {
    return load_f16(source);
  } else if constexpr (kType == DType::fp8_e4m3) {
    return load_e4m3(source);
  } else if constexpr (kType == DType::fp8_e5m2) {
    return load_e5m2(source);
  } else if constexpr (kType == DType::i4 || kType == DType::u4) {
    const hn::RebindToSigned<U32Tag> i32;
    const U32Vector codes = load_nibbles(source);
    if constexpr (kType == DType::i4) {
      return hn::ConvertTo(f32, hn::ShiftRight<28>(hn::BitCast(i32, codes)));
    } else {
      return hn::ConvertTo(f32, hn::BitCast(i32, hn::ShiftRight<28>(codes)));
    }
  } else {
    static_assert(kType == DType::i8);
    const hn::RebindToSigned<U32Tag> i32;
    const hn::Rebind<std::int8_t, F32Tag> i8;
    const auto codes = hn::LoadU(i8, static_cast<const std::int8_t*>(source));
    return hn::ConvertTo(f32, hn::PromoteTo(i32, codes));
  }
}

inline auto round_to_integer(F32Vector value, float lowest, float highest) {
  const F32Tag f32;
  const F32Vector number = hn::IfThenElseZero(hn::Eq(value, value), value);
  return hn::NearestInt(hn::Min(hn::Max(number, hn::Set(f32, lowest)), hn::Set(f32, highest)));
}
inline void store_as_i8(F32Vector value, void* target) {
  const hn::Rebind<std::int8_t, F32Tag> i8;
  const auto rounded = round_to_integer(value, -128.0f, 127.0f);
  hn::StoreU(hn::DemoteTo(i8, rounded), i8, static_cast<std::int8_t*>(target));
}
inline void store_as_nibbles(F32Vector value, float lowest, void* target) {
  const U32Tag u32;
  const U32Vector codes = hn::BitCast(u32, round_to_integer(value, lowest, lowest + 15.0f));
  store_nibbles(hn::And(codes, hn::Set(u32, 0xfu)), target);
}

// kF32Lanes elements to any address.
template <DType kType> inline void store_from_f32(F32Vector value, void* target) {
  if constexpr (kType == DType::f32) {
    store_anywhere(value, F32Tag(), target);
  } else if constexpr (kType == DType::bf16) {
    narrow_codes<std::uint16_t>(encode_bf16(value), target);
  } else if constexpr (kType == DType::f16) {
    narrow_codes<std::uint16_t>(encode_small_float<kF16>(value), target);
  } else if constexpr (kType == DType::fp8_e4m3) {
    narrow_codes<std::uint8_t>(encode_small_float<kE4M3>(value), target);
  } else if constexpr (kType == DType::fp8_e5m2) {
    narrow_codes<std::uint8_t>(encode_small_float<kE5M2>(value), target);
  } else if constexpr (kType == DType::i4 || kType == DType::u4) {
    store_as_nibbles(value, kType == DType::i4 ? -8.0f : 0.0f, target);
  } else {
    static_assert(kType == DType::i8);
    store_as_i8(value, target);
  }
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
