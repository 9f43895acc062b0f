// SPDX-License-Identifier: Apache-2.0
// How the operands of cpu/attention/streamed_strips_amx.h are laid out in vectors.
#pragma once

#include "cpu/attention/key_streams.h"
#include "cpu/simd/pack_bf16_avx512.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// B tiles [width / 32][16 pairs][columns][2] of `count` vectors, zeros up to `columns`.
inline void pack_columns(const std::uint16_t* const* vectors, int count, std::int64_t width,
                         int columns, std::uint16_t* tiles) {
  const auto kept = static_cast<__mmask16>((1u << columns) - 1u);
  for (std::int64_t k = 0; k < width; k += kPairBlock) {
    __m512i block[16];
    load_transposed(vectors, 0, count, k, width, block);
    for (int i = 0; i < 16; ++i, tiles += 2 * columns) {
      _mm512_mask_storeu_epi32(tiles, kept, block[i]);
    }
  }
}

// Columns that are packed at a time: what a head usually has. Rows go in parts of 8.
inline constexpr int kStreamBlock = 128;
inline constexpr int kPartRows = 8;
inline constexpr int kCodeBlock = 64;  // codes that are widened at a time

// out [kStreams, kStreamBlock]: columns [first, first + count) of kPartRows rows, zeros up to a
// multiple of 32.
inline void copy_rows(const StreamRows& rows, int first_row, std::int64_t first, std::int64_t count,
                      std::uint16_t* out) {
  out += first_row * kStreamBlock;
  for (int i = first_row; i < first_row + kPartRows; ++i, out += kStreamBlock) {
    const std::uint16_t* row = rows.row<std::uint16_t>(i) + first;
    if (count == kStreamBlock) {  // a count that the compiler knows
      for (int k = 0; k < kStreamBlock; k += kPairBlock) {
        _mm512_store_si512(out + k, _mm512_loadu_si512(row + k));
      }
      continue;
    }
    for (std::int64_t k = 0; k < count; k += kPairBlock) {
      _mm512_store_si512(out + k, load_block(row, k, count));
    }
  }
}

// The same from e4m3, count being a multiple of 64.
inline void widen_rows(const StreamRows& rows, int first_row, std::int64_t first,
                       std::int64_t count, std::uint16_t* out) {
  const E4m3Table table;
  out += first_row * kStreamBlock;
  for (int i = first_row; i < first_row + kPartRows; ++i, out += kStreamBlock) {
    const std::uint8_t* codes = rows.row<std::uint8_t>(i) + first;
    for (std::int64_t k = 0; k < count; k += kCodeBlock) table.widen_64(codes + k, out + k);
  }
}

// Two tiles of pairs: UNPCK takes four columns of each half of a 128-bit lane in turn, which costs
// half of what their true order would; restore_columns puts the sums right.
HWY_INLINE void store_interleaved(__m512i even, __m512i odd, std::uint16_t* tiles) {
  constexpr int kTile = 16 * kPairBlock;
  _mm512_store_si512(tiles, _mm512_unpacklo_epi16(even, odd));
  _mm512_store_si512(tiles + kTile, _mm512_unpackhi_epi16(even, odd));
}

inline constexpr std::int64_t kTwoTiles = 32 * kPairBlock;  // elements

// B tiles [count / 16][16 pairs of rows][16 columns][2] of columns [first, first + count), those
// of kPartRows rows.
inline void pair_rows(const StreamRows& rows, int first_row, std::int64_t first, std::int64_t count,
                      std::uint16_t* tiles) {
  tiles += first_row / 2 * kPairBlock;
  for (int i = first_row; i < first_row + kPartRows; i += 2, tiles += kPairBlock) {
    const std::uint16_t* even = rows.row<std::uint16_t>(i) + first;
    const std::uint16_t* odd = rows.row<std::uint16_t>(i + 1) + first;
    if (count == kStreamBlock) {
      for (int k = 0; k < kStreamBlock; k += kPairBlock) {
        store_interleaved(_mm512_loadu_si512(even + k), _mm512_loadu_si512(odd + k),
                          tiles + k / kPairBlock * kTwoTiles);
      }
      continue;
    }
    for (std::int64_t k = 0; k < count; k += kPairBlock) {
      store_interleaved(load_block(even, k, count), load_block(odd, k, count),
                        tiles + k / kPairBlock * kTwoTiles);
    }
  }
}

inline void pair_widened(const StreamRows& rows, int first_row, std::int64_t first,
                         std::int64_t count, std::uint16_t* tiles) {
  const E4m3Table table;
  tiles += first_row / 2 * kPairBlock;
  for (int i = first_row; i < first_row + kPartRows; i += 2, tiles += kPairBlock) {
    for (std::int64_t k = 0; k < count; k += kCodeBlock) {
      const auto even = table.widen(rows.row<std::uint8_t>(i) + first + k);
      const auto odd = table.widen(rows.row<std::uint8_t>(i + 1) + first + k);
      std::uint16_t* target = tiles + k / kPairBlock * kTwoTiles;
      store_interleaved(even.first, odd.first, target);
      store_interleaved(even.second, odd.second, target + kTwoTiles);
    }
  }
}

inline void restore_columns(float* out, std::int64_t width) {
  const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  for (std::int64_t column = 0; column < width; column += kPairBlock, out += kPairBlock) {
    const __m512i first = _mm512_loadu_si512(out);
    const __m512i second = _mm512_loadu_si512(out + 16);
    _mm512_storeu_si512(out, _mm512_permutex2var_epi64(first, low, second));
    _mm512_storeu_si512(out + 16, _mm512_permutex2var_epi64(first, high, second));
  }
}

// scores [rows, 32] ← transposed [32 keys, columns], columns being 4 or 16.
inline void transpose_few(const float* transposed, int rows, float* scores) {
  const __m512i in_order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  for (int half = 0; half < 2; ++half, transposed += 64, scores += 16) {
    const __m512 a = _mm512_loadu_ps(transposed);
    const __m512 b = _mm512_loadu_ps(transposed + 16);
    const __m512 c = _mm512_loadu_ps(transposed + 32);
    const __m512 d = _mm512_loadu_ps(transposed + 48);
    // Lanes of 128 bits are keys 0-3, four registers 4 keys apart: a 4 × 4 transpose in each lane.
    const __m512d ab_low = _mm512_castps_pd(_mm512_unpacklo_ps(a, b));
    const __m512d ab_high = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
    const __m512d cd_low = _mm512_castps_pd(_mm512_unpacklo_ps(c, d));
    const __m512d cd_high = _mm512_castps_pd(_mm512_unpackhi_ps(c, d));
    const __m512d found[4] = {
        _mm512_unpacklo_pd(ab_low, cd_low), _mm512_unpackhi_pd(ab_low, cd_low),
        _mm512_unpacklo_pd(ab_high, cd_high), _mm512_unpackhi_pd(ab_high, cd_high)};
    for (int r = 0; r < rows; ++r) {
      const __m512 row = _mm512_castpd_ps(found[r]);
      _mm512_store_ps(scores + r * 32, _mm512_permutexvar_ps(in_order, row));
    }
  }
}

inline void transpose_scores(const float* transposed, int columns, int rows, float* scores) {
  if (columns == 4) return transpose_few(transposed, rows, scores);
  for (int half = 0; half < 2; ++half, scores += 16) {
    __m512i block[16];
    for (int i = 0; i < 16; ++i, transposed += 16) block[i] = _mm512_loadu_si512(transposed);
    transpose_16x16(block);
    for (int r = 0; r < rows; ++r) _mm512_store_si512(scores + r * 32, block[r]);
  }
}

// A row's weights, strips of 32 keys at `stride`, as one row of each step's A tile: element s of
// step t is key kStreamSteps · s + t.
inline void spread_weights(const std::uint16_t* strips, std::int64_t stride, std::uint16_t* tiles,
                           std::int64_t tile_stride) {
  static_assert(kStreamSteps == 4 && kStreamChunk == 128);
  alignas(64) static constexpr std::uint16_t kSteps[32] = {
      0, 4, 8,  12, 16, 20, 24, 28, 1, 5, 9,  13, 17, 21, 25, 29,
      2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31};
  const __m512i by_step = _mm512_load_si512(kSteps);
  __m512i strip[4];  // lane t of 128 bits: step t
  for (int i = 0; i < 4; ++i) {
    strip[i] = _mm512_permutexvar_epi16(by_step, _mm512_load_si512(strips + i * stride));
  }
  const __m512i even01 = _mm512_shuffle_i32x4(strip[0], strip[1], 0x88);  // steps 0, 2
  const __m512i odd01 = _mm512_shuffle_i32x4(strip[0], strip[1], 0xdd);   // steps 1, 3
  const __m512i even23 = _mm512_shuffle_i32x4(strip[2], strip[3], 0x88);
  const __m512i odd23 = _mm512_shuffle_i32x4(strip[2], strip[3], 0xdd);
  _mm512_store_si512(tiles, _mm512_shuffle_i32x4(even01, even23, 0x88));
  _mm512_store_si512(tiles + tile_stride, _mm512_shuffle_i32x4(odd01, odd23, 0x88));
  _mm512_store_si512(tiles + 2 * tile_stride, _mm512_shuffle_i32x4(even01, even23, 0xdd));
  _mm512_store_si512(tiles + 3 * tile_stride, _mm512_shuffle_i32x4(odd01, odd23, 0xdd));
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
