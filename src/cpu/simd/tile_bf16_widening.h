// SPDX-License-Identifier: Apache-2.0
// bf16 where the processor has no bf16 product: a bf16 is the upper half of an f32, so a pair is
// split by a shift and a mask and multiplied in f32.
//
// A panel: [depth/2][kRows][2]. B panel: [depth/2][kCols][2], kCols being two vectors of f32.
#pragma once

#include "cpu/simd/convert_bf16.h"
#include "cpu/simd/tile_f32.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

struct WideningBf16 : PanelWalk<WideningBf16> {
  using Element = std::uint16_t;
  using Session = F32Engine::Session;
  // On AVX2 six rows would spill: g++ keeps the broadcast pairs of all of them.
  static constexpr int kRows = F32Engine::kRows == 6 ? 4 : F32Engine::kRows;
  static constexpr int kCols = F32Engine::kCols;
  static constexpr int kDepth = 2;
  static constexpr int kSummed = F32Engine::kSummed;  // the same sums: f32 may take over

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

  static double spin(std::int64_t rounds) { return F32Engine::spin(rounds); }

 private:
  friend struct PanelWalk<WideningBf16>;

  // kCount rows × kPanels column panels, b_stride apart.
  template <int kCount, int kPanels>
  static void tile(const Element* a, const Element* b, std::int64_t b_stride, std::int64_t pairs,
                   float* c, std::int64_t c_stride, Accumulate accumulate) {
    constexpr int kPairs = kSummed / 2;
    for (; pairs > kPairs; pairs -= kPairs, a += kSummed * kCount, b += kSummed * kCols) {
      sum_tile<kCount, kPanels>(a, b, b_stride, kPairs, c, c_stride, accumulate);
      accumulate = Accumulate::add;
    }
    sum_tile<kCount, kPanels>(a, b, b_stride, pairs, c, c_stride, accumulate);
  }

  template <int kCount, int kPanels>
  static void sum_tile(const Element* a, const Element* b, std::int64_t b_stride,
                       std::int64_t pairs, float* c, std::int64_t c_stride, Accumulate accumulate) {
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

// Bare numbers of packed weights, which bf16 holds exactly, widened once instead of at every product: for many rows, with
// the same bits.
struct WidenedNumbers : F32Engine {};
template <> inline constexpr bool kTakesNumbers<WidenedNumbers> = true;

}  // namespace quire::cpu::QUIRE_CPU_TARGET
