// SPDX-License-Identifier: Apache-2.0
// bf16 on AVX-512: VDPBF16PS adds the products of a pair (k, k+1) to each of 16 f32 lanes.
//
// A panel: [depth/2][8 rows][2], a row's pair is broadcast from memory.
// B panel: [depth/2][32 columns][2]. 8 × 2 registers of C.
#pragma once

#include "cpu/simd/pack_bf16_avx512.h"
#include "cpu/simd/panel_walk.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

struct Avx512Bf16 : PanelWalk<Avx512Bf16> {
  using Element = std::uint16_t;
  struct Session {
    // Nothing to hold; a constructor keeps a named session from being "unused".
    explicit Session(int width = 0) { static_cast<void>(width); }
  };
  static constexpr int kRows = 8;
  static constexpr int kCols = 32;
  static constexpr int kDepth = 2;

  static void pack_a(const Element* const* rows, int num_rows, std::int64_t depth, Element* panel) {
    for (std::int64_t k = 0; k < depth; k += kPairBlock) {
      __m512i block[16];
      load_transposed(rows, 0, num_rows, k, depth, block);
      panel = store_a(block, depth - k, panel);
    }
  }

  static void pack_a_narrow(const Element* const* rows, int num_rows, int width, std::int64_t depth,
                            Element* panel) {
    for (std::int64_t k = 0; k < depth; k += kPairBlock) {
      __m512i block[16];
      load_transposed(rows, 0, num_rows, k, depth, block);
      const int pairs = pairs_in_block(depth - k);
      const auto mask = static_cast<__mmask16>((1 << width) - 1);
      for (int i = 0; i < pairs; ++i, panel += 2 * width) {
        _mm512_mask_storeu_epi32(panel, mask, block[i]);
      }
    }
  }

  static void pack_a_f32(const float* rows, std::int64_t stride, int num_rows, std::int64_t depth,
                         Element* panel) {
    for (std::int64_t k = 0; k < depth; k += kPairBlock) {
      __m512i block[16];
      for (int i = 0; i < 16; ++i) {
        block[i] =
            i < num_rows ? load_block_f32(rows + i * stride, k, depth) : _mm512_setzero_si512();
      }
      transpose_16x16(block);
      panel = store_a(block, depth - k, panel);
    }
  }

  static void pack_b_columns(const Element* const* columns, int num_columns, std::int64_t depth,
                             Element* panel) {
    for (std::int64_t k = 0; k < depth; k += kPairBlock) {
      const int pairs = pairs_in_block(depth - k);
      for (int half = 0; half < kCols; half += 16) {
        __m512i block[16];
        load_transposed(columns, half, num_columns, k, depth, block);
        for (int i = 0; i < pairs; ++i) {
          _mm512_storeu_si512(panel + (i * kCols + half) * 2, block[i]);
        }
      }
      panel += pairs * kCols * 2;
    }
  }

  static void pack_b_rows(const Element* const* rows, std::int64_t depth, int num_columns,
                          Element* panel) {
    for (std::int64_t k = 0; k < depth; k += 2, panel += 2 * kCols) {
      const Element* odd = k + 1 < depth ? rows[k + 1] : nullptr;
      _mm512_storeu_si512(panel, interleave_rows(rows[k], odd, 0, num_columns));
      _mm512_storeu_si512(panel + kCols, interleave_rows(rows[k], odd, 16, num_columns));
    }
  }

  static double spin(std::int64_t rounds) {
    __m512 sums[kRows][2];
    for (int i = 0; i < 2 * kRows; ++i) {
      sums[i / 2][i % 2] = _mm512_set1_ps(static_cast<float>(i));  // distinct: not one chain
    }
    __m512i ones = _mm512_set1_epi32(0x3f803f80);
    __asm__ volatile("" : "+v"(ones));
    const auto pairs = reinterpret_cast<__m512bh>(ones);
    for (std::int64_t r = 0; r < rounds; ++r) {
      for (auto& row : sums) {
        row[0] = _mm512_dpbf16_ps(row[0], pairs, pairs);
        row[1] = _mm512_dpbf16_ps(row[1], pairs, pairs);
      }
    }
    for (auto& row : sums) __asm__ volatile("" : : "v"(row[0]), "v"(row[1]));
    return 2.0 * 2.0 * kRows * kCols * static_cast<double>(rounds);
  }

 private:
  friend struct PanelWalk<Avx512Bf16>;

  static int pairs_in_block(std::int64_t left) {
    return static_cast<int>(left >= kPairBlock ? 16 : (left + 1) / 2);
  }

  static Element* store_a(const __m512i (&block)[16], std::int64_t left, Element* panel) {
    const int pairs = pairs_in_block(left);
    for (int i = 0; i < pairs; ++i, panel += 2 * kRows) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(panel), _mm512_castsi512_si256(block[i]));
    }
    return panel;
  }

  static __m512bh load_pairs(const Element* pairs) {
    return reinterpret_cast<__m512bh>(_mm512_loadu_si512(pairs));
  }
  static __m512bh broadcast_pair(const Element* pair) {
    return reinterpret_cast<__m512bh>(_mm512_set1_epi32(*reinterpret_cast<const Pair*>(pair)));
  }
  typedef std::int32_t Pair __attribute__((may_alias));

  // kCount rows × kPanels column panels, b_stride apart.
  template <int kCount, int kPanels>
  static void tile(const Element* a, const Element* b, std::int64_t b_stride, std::int64_t pairs,
                   float* c, std::int64_t c_stride, Accumulate accumulate) {
    constexpr int kVectors = 2 * kPanels;
    __m512 sums[kCount][kVectors];
    for (auto& row : sums) {
      for (__m512& sum : row) sum = _mm512_setzero_ps();
    }
    for (std::int64_t k = 0; k < pairs; ++k, a += 2 * kCount, b += 2 * kCols) {
      __m512bh columns[kVectors];
      for (int j = 0; j < kVectors; ++j) {
        columns[j] = load_pairs(b + j / 2 * b_stride + j % 2 * kCols);
      }
      for (int i = 0; i < kCount; ++i) {
        const __m512bh row = broadcast_pair(a + 2 * i);
        for (int j = 0; j < kVectors; ++j) {
          sums[i][j] = _mm512_dpbf16_ps(sums[i][j], row, columns[j]);
        }
      }
    }
    for (int i = 0; i < kCount; ++i) {
      for (int j = 0; j < kVectors; ++j) {
        float* out = c + i * c_stride + 16 * j;
        if (accumulate == Accumulate::add) {
          sums[i][j] = _mm512_add_ps(_mm512_loadu_ps(out), sums[i][j]);
        }
        _mm512_storeu_ps(out, sums[i][j]);
      }
    }
  }
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
