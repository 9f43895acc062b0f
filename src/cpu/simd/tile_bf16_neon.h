// SPDX-License-Identifier: Apache-2.0
// bf16 on aarch64 with BFMMLA: a register holds 2 rows × 4 k of A, another 2 columns × 4 k of B,
// and their product is added to 2 × 2 f32 sums.
//
// A panel: [depth/4][8 rows][4]. B panel: [depth/4][8 columns][4]. 4 × 4 registers of C: with more
// accumulators g++ 12 spills.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "cpu/simd/row_width.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

struct NeonBf16 {
  using Element = std::uint16_t;
  struct Session {
    // Nothing to hold; a constructor keeps a named session from being "unused".
    explicit Session(int width = 0) { static_cast<void>(width); }
  };
  static constexpr int kRows = 8;
  static constexpr int kCols = 8;
  static constexpr int kDepth = 4;

  static void pack_a(const Element* const* rows, int num_rows, std::int64_t depth, Element* panel) {
    pack_vectors(rows, num_rows, kRows, depth, panel);
  }

  static void pack_a_f32(const float* rows, std::int64_t stride, int num_rows, std::int64_t depth,
                         Element* panel) {
    for (std::int64_t k = 0; k < depth; k += kDepth) {
      for (int i = 0; i < kRows; ++i, panel += kDepth) {
        float four[4] = {};
        const std::int64_t count = depth - k < kDepth ? depth - k : kDepth;
        for (std::int64_t j = 0; i < num_rows && j < count; ++j) four[j] = rows[i * stride + k + j];
        vst1_u16(panel, vreinterpret_u16_bf16(vcvt_bf16_f32(vld1q_f32(four))));
      }
    }
  }

  static void pack_b_columns(const Element* const* columns, int num_columns, std::int64_t depth,
                             Element* panel) {
    pack_vectors(columns, num_columns, kCols, depth, panel);
  }

  static void pack_b_rows(const Element* const* rows, std::int64_t depth, int num_columns,
                          Element* panel) {
    for (std::int64_t k = 0; k < depth; k += kDepth, panel += kCols * kDepth) {
      uint16x8_t row[4];
      for (int j = 0; j < 4; ++j)
        row[j] = load_row(k + j < depth ? rows[k + j] : nullptr, num_columns);
      const uint16x8x2_t even = vzipq_u16(row[0], row[2]);
      const uint16x8x2_t odd = vzipq_u16(row[1], row[3]);
      for (int half = 0; half < 2; ++half) {
        const uint16x8x2_t columns = vzipq_u16(even.val[half], odd.val[half]);
        vst1q_u16(panel + half * 16, columns.val[0]);
        vst1q_u16(panel + half * 16 + 8, columns.val[1]);
      }
    }
  }

  // BFMMLA multiplies pairs of rows.
  static constexpr int narrow_rows(int rows) { return rows <= 2 ? 2 : power_of_two_rows(rows, 8); }

  static void pack_a_narrow(const Element* const* rows, int num_rows, int width, std::int64_t depth,
                            Element* panel) {
    pack_vectors(rows, num_rows, width, depth, panel);
  }

  static void multiply(const Element* a, int row_panels, const Element* b, int col_panels,
                       std::int64_t depth, float* c, std::int64_t c_stride, Accumulate accumulate,
                       PanelStrides strides = {}) {
    const std::int64_t padded = round_up_to(depth, kDepth);
    const std::int64_t a_stride = strides.a == 0 ? kRows * padded : strides.a;
    const std::int64_t b_stride = strides.b == 0 ? kCols * padded : strides.b;
    for (int n = 0; n < col_panels; ++n) {
      for (int m = 0; m < row_panels; ++m) {
        tile<4, 1>(a + m * a_stride, b + n * b_stride, 0, padded / kDepth,
                   c + m * kRows * c_stride + n * kCols, c_stride, accumulate);
      }
    }
  }

  static void multiply_narrow(const Element* a, int width, const Element* b, int col_panels,
                              std::int64_t depth, float* c, std::int64_t c_stride,
                              Accumulate accumulate, std::int64_t b_stride) {
    const std::int64_t steps = round_up_to(depth, kDepth) / kDepth;
    on_width<4>(width / 2, [&](auto tag) {
      constexpr int kPairs = decltype(tag)::kRows;
      constexpr int kPanels = kPairs == 4 ? 1 : 2;
      int n = 0;
      for (; n + kPanels <= col_panels; n += kPanels) {
        tile<kPairs, kPanels>(a, b + n * b_stride, b_stride, steps, c + n * kCols, c_stride,
                              accumulate);
      }
      for (; n < col_panels; ++n) {
        tile<kPairs, 1>(a, b + n * b_stride, 0, steps, c + n * kCols, c_stride, accumulate);
      }
    });
  }

  static double spin(std::int64_t rounds) {
    uint16x8_t ones = vdupq_n_u16(0x3f80);
    __asm__ volatile("" : "+w"(ones));
    const bfloat16x8_t pair = vreinterpretq_bf16_u16(ones);
    float32x4_t sums[16];
    for (int i = 0; i < 16; ++i) sums[i] = vdupq_n_f32(static_cast<float>(i));
    for (std::int64_t r = 0; r < rounds; ++r) {
      for (float32x4_t& sum : sums) sum = vbfmmlaq_f32(sum, pair, pair);
    }
    for (float32x4_t& sum : sums) __asm__ volatile("" : : "w"(sum));
    return 2.0 * kRows * kCols * kDepth * static_cast<double>(rounds);
  }

 private:
  static void pack_vectors(const Element* const* vectors, int count, int width, std::int64_t depth,
                           Element* panel) {
    for (std::int64_t k = 0; k < depth; k += kDepth) {
      const std::int64_t left = depth - k < kDepth ? depth - k : kDepth;
      for (int i = 0; i < width; ++i, panel += kDepth) {
        const Element* vector = i < count ? vectors[i] : nullptr;
        if (vector != nullptr && left == kDepth) {
          vst1_u16(panel, vld1_u16(vector + k));
        } else {
          for (int j = 0; j < kDepth; ++j) {
            panel[j] = vector != nullptr && j < left ? vector[k + j] : Element{0};
          }
        }
      }
    }
  }

  static uint16x8_t load_row(const Element* row, int num_columns) {
    if (row != nullptr && num_columns >= kCols) return vld1q_u16(row);
    Element part[kCols] = {};
    for (int n = 0; row != nullptr && n < num_columns; ++n) part[n] = row[n];
    return vld1q_u16(part);
  }

  static bfloat16x8_t load_pair(const Element* pair) {
    return vreinterpretq_bf16_u16(vld1q_u16(pair));
  }

  // kPairs row pairs × kPanels column panels, b_stride apart.
  template <int kPairs, int kPanels>
  static void tile(const Element* a, const Element* b, std::int64_t b_stride, std::int64_t steps,
                   float* c, std::int64_t c_stride, Accumulate accumulate) {
    constexpr int kColumnPairs = 4 * kPanels;
    float32x4_t sums[kPairs][kColumnPairs];  // r0c0 r0c1 r1c0 r1c1
    for (auto& row : sums) {
      for (float32x4_t& sum : row) sum = vdupq_n_f32(0.0f);
    }
    for (std::int64_t step = 0; step < steps; ++step, a += 8 * kPairs, b += kCols * kDepth) {
      bfloat16x8_t rows[kPairs];
      for (int i = 0; i < kPairs; ++i) rows[i] = load_pair(a + 8 * i);
      for (int j = 0; j < kColumnPairs; ++j) {
        const bfloat16x8_t columns = load_pair(b + j / 4 * b_stride + 8 * (j % 4));
        for (int i = 0; i < kPairs; ++i) sums[i][j] = vbfmmlaq_f32(sums[i][j], rows[i], columns);
      }
    }
    for (int i = 0; i < kPairs; ++i) {
      for (int j = 0; j < kColumnPairs; j += 2) {
        float* out = c + 2 * i * c_stride + 2 * j;
        store_row(vcombine_f32(vget_low_f32(sums[i][j]), vget_low_f32(sums[i][j + 1])), out,
                  accumulate);
        store_row(vcombine_f32(vget_high_f32(sums[i][j]), vget_high_f32(sums[i][j + 1])),
                  out + c_stride, accumulate);
      }
    }
  }

  static void store_row(float32x4_t sum, float* out, Accumulate accumulate) {
    vst1q_f32(out, accumulate == Accumulate::add ? vaddq_f32(vld1q_f32(out), sum) : sum);
  }
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
