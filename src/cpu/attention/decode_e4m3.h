// SPDX-License-Identifier: Apache-2.0
// fp8 e4m3 to bf16, where every one of its values is exact.
#pragma once

#include <hwy/highway.h>
#include "cpu/simd/convert.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// Codes of e4m3 as bf16, where every one of them is exact: exponents move by 127 - 7, the seven
// subnormals come out of a table.
#if defined(__AVX512BW__)
// Masked instructions do it in nine where the code below takes sixteen.
template <typename D> HWY_INLINE hn::Vec<D> bf16_from_e4m3(D /*u16*/, hn::Vec<D> codes) {
  alignas(64) static constexpr std::uint16_t kSubnormals[32] = {0x0000, 0x3b00, 0x3b80, 0x3bc0,
                                                                0x3c00, 0x3c20, 0x3c40, 0x3c60};
  const __m512i magnitude = _mm512_and_si512(codes.raw, _mm512_set1_epi16(0x7f));
  const __m512i normal =
      _mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), _mm512_set1_epi16(0x3c00));
  const __mmask32 is_subnormal = _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16(8));
  const __mmask32 is_nan = _mm512_cmpeq_epu16_mask(magnitude, _mm512_set1_epi16(0x7f));
  __m512i value = _mm512_mask_permutexvar_epi16(normal, is_subnormal, magnitude,
                                                _mm512_load_si512(kSubnormals));
  value = _mm512_mask_mov_epi16(value, is_nan, _mm512_set1_epi16(0x7fc0));
  constexpr int kOrAnd = 0xf8;  // a | (b & c)
  const __m512i sign_bit = _mm512_set1_epi16(static_cast<short>(0x8000));
  return hn::Vec<D>{
      _mm512_ternarylogic_epi32(value, _mm512_slli_epi16(codes.raw, 8), sign_bit, kOrAnd)};
}
#else
template <typename D> HWY_INLINE hn::Vec<D> bf16_from_e4m3(D u16, hn::Vec<D> codes) {
  const hn::Repartition<std::uint8_t, D> u8;
  // Low bytes of 0 … 7 · 2^-9, then their high bytes.
  alignas(16) static constexpr std::uint8_t kSubnormals[16] = {0x00, 0x00, 0x80, 0xc0, 0x00, 0x20,
                                                               0x40, 0x60, 0x00, 0x3b, 0x3b, 0x3b,
                                                               0x3c, 0x3c, 0x3c, 0x3c};
  const auto magnitude = hn::And(codes, hn::Set(u16, std::uint16_t{0x7f}));
  const auto sign = hn::ShiftLeft<8>(hn::Xor(codes, magnitude));
  const auto normal = hn::Add(hn::ShiftLeft<4>(magnitude), hn::Set(u16, std::uint16_t{0x3c00}));
  const auto places =
      hn::Add(hn::Or(magnitude, hn::ShiftLeft<8>(magnitude)), hn::Set(u16, std::uint16_t{0x0800}));
  const auto looked_up =
      hn::TableLookupBytes(hn::LoadDup128(u8, kSubnormals), hn::BitCast(u8, places));
  const auto is_subnormal = hn::Lt(magnitude, hn::Set(u16, std::uint16_t{8}));
  const auto is_nan = hn::Eq(magnitude, hn::Set(u16, std::uint16_t{0x7f}));
  auto value = hn::IfThenElse(is_subnormal, hn::BitCast(u16, looked_up), normal);
  value = hn::IfThenElse(is_nan, hn::Set(u16, std::uint16_t{0x7fc0}), value);
  return hn::Or(value, sign);
}
#endif

#if defined(__AVX512VBMI__)
// The bytes of the bf16 values of codes without their sign.
struct E4m3Bytes {
  constexpr E4m3Bytes() {
    constexpr std::uint16_t kSubnormals[8] = {0x0000, 0x3b00, 0x3b80, 0x3bc0,
                                              0x3c00, 0x3c20, 0x3c40, 0x3c60};
    for (int code = 0; code < 128; ++code) {
      const int value = code < 8 ? kSubnormals[code] : code == 0x7f ? 0x7fc0 : code * 16 + 0x3c00;
      low[code] = static_cast<std::uint8_t>(value & 0xff);
      high[code] = static_cast<std::uint8_t>(value >> 8);
    }
  }

  alignas(64) std::uint8_t low[128] = {};
  alignas(64) std::uint8_t high[128] = {};
};
inline constexpr E4m3Bytes kE4m3Bytes;

// 64 codes at a time: VPERMI2B finds a byte of each value among 128, by all bits of a code but its
// sign. Half of what the arithmetic above takes.
class E4m3Table {
 public:
  E4m3Table() {
    for (int i = 0; i < 2; ++i) {
      low_[i] = _mm512_load_si512(kE4m3Bytes.low + 64 * i);
      high_[i] = _mm512_load_si512(kE4m3Bytes.high + 64 * i);
    }
  }

  struct Widened {
    __m512i first;  // bf16 of codes 0-31
    __m512i second;
  };
  HWY_INLINE Widened widen(const std::uint8_t* codes) const {
    constexpr int kOrAnd = 0xf8;  // a | (b & c)
    // UNPCK takes halves of 128-bit lanes: this order of the codes makes its results the true one.
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    const __m512i found = _mm512_permutexvar_epi64(order, _mm512_loadu_si512(codes));
    const __m512i low = _mm512_permutex2var_epi8(low_[0], found, low_[1]);
    const __m512i high =
        _mm512_ternarylogic_epi32(_mm512_permutex2var_epi8(high_[0], found, high_[1]), found,
                                  _mm512_set1_epi8(static_cast<char>(0x80)), kOrAnd);
    return {_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)};
  }
  HWY_INLINE void widen_64(const std::uint8_t* codes, std::uint16_t* out) const {
    const Widened widened = widen(codes);
    _mm512_storeu_si512(out, widened.first);
    _mm512_storeu_si512(out + 32, widened.second);
  }

 private:
  __m512i low_[2];
  __m512i high_[2];
};
#endif

HWY_INLINE void decode_e4m3(const std::byte* codes, std::int64_t count, std::uint16_t* out) {
  const hn::ScalableTag<std::uint16_t> u16;
  const hn::Rebind<std::uint8_t, decltype(u16)> u8;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(codes);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(u16));
  std::int64_t i = 0;
#if defined(__AVX512VBMI__)
  const E4m3Table table;
  for (; i + 64 <= count; i += 64) table.widen_64(bytes + i, out + i);
#endif
  for (; i + lanes <= count; i += lanes) {
    const auto wide = hn::PromoteTo(u16, hn::LoadU(u8, bytes + i));
    hn::StoreU(bf16_from_e4m3(u16, wide), u16, out + i);
  }
  if (i == count) return;
  alignas(64) std::uint8_t part[hn::MaxLanes(u16)] = {};
  alignas(64) std::uint16_t tail[hn::MaxLanes(u16)];
  __builtin_memcpy(part, bytes + i, static_cast<std::size_t>(count - i));
  hn::StoreU(bf16_from_e4m3(u16, hn::PromoteTo(u16, hn::LoadU(u8, part))), u16, tail);
  __builtin_memcpy(out + i, tail, static_cast<std::size_t>(count - i) * sizeof(std::uint16_t));
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
