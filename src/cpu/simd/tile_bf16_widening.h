// SPDX-License-Identifier: Apache-2.0
// bf16 where the processor has no bf16 product: a bf16 is the upper half of an f32, so a pair is
// split by a shift and a mask and multiplied in f32.
//
// A panel: [depth/2][kRows][2]. B panel: [depth/2][kCols][2], kCols being two vectors of f32.
#pragma once

#include "cpu/simd/convert_bf16.h"
#include "cpu/simd/tile_f32.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

struct WideningBf16 {
  using Element = std::uint16_t;
  using Session = F32Engine::Session;
  // On AVX2 six rows would spill: g++ keeps the broadcast pairs of all of them.
  static constexpr int kRows = F32Engine::kRows == 6 ? 4 : F32Engine::kRows;
  static constexpr int kCols = F32Engine::kCols;
  static constexpr int kDepth = 2;

  static void pack_a(const Element* const* rows, int num_rows, std::int64_t depth, Element* panel) {
    pack_units<kRows>(rows, num_rows, depth, reinterpret_cast<std::uint32_t*>(panel));
  }

  static void pack_a_f32(const float* rows, std::int64_t stride, int num_rows, std::int64_t depth,
                         Element* panel) {
    const std::int64_t padded = round_up_to(depth, kDepth);
    for (std::int64_t k = 0; k < padded; ++k) {
      Element* out = panel + (k / 2) * kRows * 2 + k % 2;
      for (int i = 0; i < kRows; ++i) {
        out[2 * i] = i < num_rows && k < depth ? bf16_from_f32(rows[i * stride + k]) : Element{0};
      }
    }
  }

  static void pack_b_columns(const Element* const* columns, int num_columns, std::int64_t depth,
                             Element* panel) {
    pack_units<kCols>(columns, num_columns, depth, reinterpret_cast<std::uint32_t*>(panel));
  }

  static void pack_b_rows(const Element* const* rows, std::int64_t depth, int num_columns,
                          Element* panel) {
    for (std::int64_t k = 0; k < depth; k += 2, panel += 2 * kCols) {
      const Element* even = rows[k];
      const Element* odd = k + 1 < depth ? rows[k + 1] : nullptr;
      for (int n = 0; n < kCols; ++n) {
        panel[2 * n] = even != nullptr && n < num_columns ? even[n] : Element{0};
        panel[2 * n + 1] = odd != nullptr && n < num_columns ? odd[n] : Element{0};
      }
    }
  }

  static void multiply(const Element* a, int row_panels, const Element* b, int col_panels,
                       std::int64_t depth, float* c, std::int64_t c_stride, Accumulate accumulate) {
    const std::int64_t pairs = round_up_to(depth, kDepth) / 2;
    for (int n = 0; n < col_panels; ++n) {
      for (int m = 0; m < row_panels; ++m) {
        tile(a + m * kRows * 2 * pairs, b + n * kCols * 2 * pairs, pairs,
             c + m * kRows * c_stride + n * kCols, c_stride, accumulate);
      }
    }
  }

  static double spin(std::int64_t rounds) { return F32Engine::spin(rounds); }

 private:
  static void tile(const Element* a, const Element* b, std::int64_t pairs, float* c,
                   std::int64_t c_stride, Accumulate accumulate) {
    const hn::ScalableTag<float> d;
    using V = hn::Vec<hn::ScalableTag<float>>;
    V sums[kRows][2];
    for (int i = 0; i < kRows; ++i) sums[i][0] = sums[i][1] = hn::Zero(d);
    for (std::int64_t k = 0; k < pairs; ++k, a += 2 * kRows, b += 2 * kCols) {
      const V left_even = even_as_f32(load_pairs(b));
      const V right_even = even_as_f32(load_pairs(b + kCols));
      for (int i = 0; i < kRows; ++i) {
        const V row = even_as_f32(broadcast_pair(a + 2 * i));
        sums[i][0] = hn::MulAdd(row, left_even, sums[i][0]);
        sums[i][1] = hn::MulAdd(row, right_even, sums[i][1]);
      }
      const V left_odd = odd_as_f32(load_pairs(b));
      const V right_odd = odd_as_f32(load_pairs(b + kCols));
      for (int i = 0; i < kRows; ++i) {
        const V row = odd_as_f32(broadcast_pair(a + 2 * i));
        sums[i][0] = hn::MulAdd(row, left_odd, sums[i][0]);
        sums[i][1] = hn::MulAdd(row, right_odd, sums[i][1]);
      }
    }
    store_sums(d, sums, c, c_stride, accumulate);
  }
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
