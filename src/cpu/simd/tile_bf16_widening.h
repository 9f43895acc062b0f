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

  static constexpr int narrow_rows(int rows) { return power_of_two_rows(rows, kRows); }

  static void pack_a_narrow(const Element* const* rows, int num_rows, int width, std::int64_t depth,
                            Element* panel) {
    on_width<kRows>(width, [&](auto tag) {
      pack_units<decltype(tag)::kRows>(rows, num_rows, depth,
                                       reinterpret_cast<std::uint32_t*>(panel));
    });
  }

  static void multiply(const Element* a, int row_panels, const Element* b, int col_panels,
                       std::int64_t depth, float* c, std::int64_t c_stride, Accumulate accumulate,
                       PanelStrides strides = {}) {
    const std::int64_t pairs = round_up_to(depth, kDepth) / 2;
    const std::int64_t a_stride = strides.a == 0 ? kRows * 2 * pairs : strides.a;
    const std::int64_t b_stride = strides.b == 0 ? kCols * 2 * pairs : strides.b;
    for (int n = 0; n < col_panels; ++n) {
      for (int m = 0; m < row_panels; ++m) {
        tile<kRows, 1>(a + m * a_stride, b + n * b_stride, 0, pairs,
                       c + m * kRows * c_stride + n * kCols, c_stride, accumulate);
      }
    }
  }

  static void multiply_narrow(const Element* a, int width, const Element* b, int col_panels,
                              std::int64_t depth, float* c, std::int64_t c_stride,
                              Accumulate accumulate, std::int64_t b_stride) {
    const std::int64_t pairs = round_up_to(depth, kDepth) / 2;
    on_width<kRows>(width, [&](auto tag) {
      constexpr int kCount = decltype(tag)::kRows;
      constexpr int kPanels = kCount == kRows ? 1 : 2;
      int n = 0;
      for (; n + kPanels <= col_panels; n += kPanels) {
        tile<kCount, kPanels>(a, b + n * b_stride, b_stride, pairs, c + n * kCols, c_stride,
                              accumulate);
      }
      for (; n < col_panels; ++n) {
        tile<kCount, 1>(a, b + n * b_stride, 0, pairs, c + n * kCols, c_stride, accumulate);
      }
    });
  }

  static double spin(std::int64_t rounds) { return F32Engine::spin(rounds); }

 private:
  // kCount rows × kPanels column panels, b_stride apart.
  template <int kCount, int kPanels>
  static void tile(const Element* a, const Element* b, std::int64_t b_stride, std::int64_t pairs,
                   float* c, std::int64_t c_stride, Accumulate accumulate) {
    const hn::ScalableTag<float> d;
    using V = hn::Vec<hn::ScalableTag<float>>;
    constexpr int kVectors = 2 * kPanels;
    V sums[kCount][kVectors];
    for (auto& row : sums) {
      for (V& sum : row) sum = hn::Zero(d);
    }
    const auto columns_at = [&](int j) { return load_pairs(b + j / 2 * b_stride + j % 2 * kCols); };
    for (std::int64_t k = 0; k < pairs; ++k, a += 2 * kCount, b += 2 * kCols) {
      V columns[kVectors];
      for (int j = 0; j < kVectors; ++j) columns[j] = even_as_f32(columns_at(j));
      for (int i = 0; i < kCount; ++i) {
        const V row = even_as_f32(broadcast_pair(a + 2 * i));
        for (int j = 0; j < kVectors; ++j) sums[i][j] = hn::MulAdd(row, columns[j], sums[i][j]);
      }
      for (int j = 0; j < kVectors; ++j) columns[j] = odd_as_f32(columns_at(j));
      for (int i = 0; i < kCount; ++i) {
        const V row = odd_as_f32(broadcast_pair(a + 2 * i));
        for (int j = 0; j < kVectors; ++j) sums[i][j] = hn::MulAdd(row, columns[j], sums[i][j]);
      }
    }
    store_sums(d, sums, c, c_stride, accumulate);
  }
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
