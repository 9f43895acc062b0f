// SPDX-License-Identifier: Apache-2.0
// Packed numbers to bf16 pairs with AVX-512: 4-bit codes and e4m3 through tables in a register.
#pragma once

#include "cpu/simd/decode_avx512.h"
#include "cpu/simd/packed_numbers.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// bf16 of −16 … 15, at the number's low five bits.
inline __m512i small_int_table() {
  const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return bf16_of_ints(low, _mm512_sub_epi32(low, _mm512_set1_epi32(16)));
}

// zeros: of 16 columns, in both halves of each lane.
inline void decode_nibbles(const std::byte* source, std::int64_t width, std::int64_t column,
                           __m512i zeros, __m512i table, std::uint32_t* pairs) {
  const __m512i words = _mm512_loadu_si512(source + 4 * column);
  const __m512i mask = _mm512_set1_epi32(0x000f000f);
  const auto store = [&](int pair, __m512i shifted) {
    const __m512i numbers = _mm512_sub_epi16(_mm512_and_si512(shifted, mask), zeros);
    _mm512_storeu_si512(pairs + pair * width + column, _mm512_permutexvar_epi16(numbers, table));
  };
  store(0, words);
  store(1, _mm512_srli_epi32(words, 4));
  store(2, _mm512_srli_epi32(words, 8));
  store(3, _mm512_srli_epi32(words, 12));
}

// Whether the format has such a decoder; then columns [k, k + depth) of the panel are in `out`.
inline bool decode_packed_registers(const WeightView& w, std::int64_t panel, std::int64_t k,
                                    std::int64_t depth, std::uint16_t* out) {
  const std::int64_t width = w.packed.width;
  const std::byte* source = w.data + panel * w.packed.panel_bytes + k * width * w.packed.bits / 8;
  auto* pairs = reinterpret_cast<std::uint32_t*>(out);
  if (w.packed.bits == 4) {
    const PackedScales scales(w, panel);
    const __m512i table = has_table(w) ? table_values(w.block->values) : small_int_table();
    for (std::int64_t column = 0; column < width; column += 16) {
      for (std::int64_t at = 0; at < depth;) {
        const std::int64_t group = (k + at) / w.group;
        const std::int64_t left = (group + 1) * w.group - k;
        const std::int64_t end = left < depth ? left : depth;
        const __m512i zero = scales.zeros(group, column, has_middle_zero(w)).raw;
        const __m512i zeros = _mm512_or_si512(zero, _mm512_slli_epi32(zero, 16));
        for (; at < end; at += 8) {
          decode_nibbles(source + at * width / 2, width, column, zeros, table,
                         pairs + at / 2 * width);
        }
      }
    }
    return true;
  }
  if (w.codes != Codes::fp8_e4m3) return false;
  for (std::int64_t at = 0; at < depth; at += 8, source += 8 * width, pairs += 4 * width) {
    for (std::int64_t column = 0; column < width; column += 16) {
      const __m512i low = _mm512_loadu_si512(source + 4 * column);
      const __m512i high = _mm512_loadu_si512(source + 4 * (width + column));
      const __m512i bytes = _mm512_set1_epi16(0xff);
      const __m512i codes[4] = {_mm512_and_si512(low, bytes), _mm512_and_si512(high, bytes),
                                _mm512_srli_epi16(low, 8), _mm512_srli_epi16(high, 8)};
      for (int i = 0; i < 4; ++i) {
        _mm512_storeu_si512(pairs + i * width + column, decode_e4m3_codes(codes[i]));
      }
    }
  }
  return true;
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
