// SPDX-License-Identifier: Apache-2.0
// A 16 × 16 transpose of 32-bit lanes in registers.
#pragma once

#include <immintrin.h>

#include "cpu/simd/tile.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// In place: lane j of register i becomes lane i of register j.
inline void transpose_16x16(__m512i (&rows)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    rows[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    rows[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    rows[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    rows[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // Registers 4g + c now hold, in 128-bit lane l, column 4l + c of rows 4g … 4g + 3.
  for (int c = 0; c < 4; ++c) {
    t[c] = _mm512_shuffle_i32x4(rows[c], rows[c + 4], 0x88);
    t[c + 4] = _mm512_shuffle_i32x4(rows[c], rows[c + 4], 0xdd);
    t[c + 8] = _mm512_shuffle_i32x4(rows[c + 8], rows[c + 12], 0x88);
    t[c + 12] = _mm512_shuffle_i32x4(rows[c + 8], rows[c + 12], 0xdd);
  }
  for (int c = 0; c < 4; ++c) {
    rows[c] = _mm512_shuffle_i32x4(t[c], t[c + 8], 0x88);
    rows[c + 8] = _mm512_shuffle_i32x4(t[c], t[c + 8], 0xdd);
    rows[c + 4] = _mm512_shuffle_i32x4(t[c + 4], t[c + 12], 0x88);
    rows[c + 12] = _mm512_shuffle_i32x4(t[c + 4], t[c + 12], 0xdd);
  }
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
