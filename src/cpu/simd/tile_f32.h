// SPDX-License-Identifier: Apache-2.0
// F32Engine: f32 matrix tiles of fused multiply-adds, for every target (contract: cpu/simd/tile.h).
//
// A panel: [depth][kRows], a row's element is broadcast. B panel: [depth][kCols], kCols being two
// vectors.
#pragma once

#include "cpu/simd/panel_walk.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// Rows of a register tile of two vectors: as many as the register file holds beside two vectors of
// B and one of A, and at most 8.
#if HWY_TARGET == HWY_AVX2
inline constexpr int kFmaRows = 6;
#elif HWY_ARCH_X86 && HWY_TARGET != HWY_AVX3 && HWY_TARGET != HWY_AVX3_DL
inline constexpr int kFmaRows = 4;  // 128-bit x86: the product needs a register too
#else
inline constexpr int kFmaRows = 8;
#endif

// c [rows, vectors] (+)= sums.
template <int kCount, int kVectors, typename D, typename V>
inline void store_sums(D d, const V (&sums)[kCount][kVectors], float* c, std::int64_t c_stride,
                       Accumulate accumulate) {
  const int lanes = static_cast<int>(hn::Lanes(d));
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      float* out = c + i * c_stride + j * lanes;
      const V sum = sums[i][j];
      hn::StoreU(accumulate == Accumulate::add ? hn::Add(hn::LoadU(d, out), sum) : sum, d, out);
    }
  }
}

struct F32Engine : PanelWalk<F32Engine> {
  using Element = float;
  struct Session {
    // Nothing to hold; a constructor keeps a named session from being "unused".
    explicit Session(int width = 0) { static_cast<void>(width); }
  };
  static constexpr int kRows = kFmaRows;
  static constexpr int kCols = 2 * static_cast<int>(hn::MaxLanes(hn::ScalableTag<float>()));
  static constexpr int kDepth = 1;
  // Products that are summed for themselves before they join the rest: rounding errors grow with these parts,
  // not with the depth. On AVX2 parts of 32 would cost 4 to 10 % of the speed, parts of 64 cost 3 at most.
  static constexpr int kSummed = HWY_ARCH_X86 ? 64 : 32;

  static void pack_a(const float* const* rows, int num_rows, std::int64_t depth, float* panel) {
    pack_units<kRows>(rows, num_rows, depth, reinterpret_cast<std::uint32_t*>(panel));
  }

  static void pack_a_f32(const float* rows, std::int64_t stride, int num_rows, std::int64_t depth,
                         float* panel) {
    const float* pointers[kRows];
    for (int i = 0; i < num_rows; ++i) pointers[i] = rows + i * stride;
    pack_a(pointers, num_rows, depth, panel);
  }

  static void pack_b_columns(const float* const* columns, int num_columns, std::int64_t depth,
                             float* panel) {
    pack_units<kCols>(columns, num_columns, depth, reinterpret_cast<std::uint32_t*>(panel));
  }

  static void pack_b_rows(const float* const* rows, std::int64_t depth, int num_columns,
                          float* panel) {
    for (std::int64_t k = 0; k < depth; ++k, panel += kCols) {
      if (rows[k] != nullptr && num_columns == kCols) {
        __builtin_memcpy(panel, rows[k], kCols * sizeof(float));
        continue;
      }
      const int count = rows[k] == nullptr ? 0 : num_columns;
      for (int n = 0; n < count; ++n) panel[n] = rows[k][n];
      for (int n = count; n < kCols; ++n) panel[n] = 0.0f;
    }
  }

  static double spin(std::int64_t rounds) {
    const hn::ScalableTag<float> d;
    using V = hn::Vec<hn::ScalableTag<float>>;
    volatile float one = 1.0f;  // the compiler must not see through the loop
    const V factor = hn::Set(d, one);
    V sums[kRows][2];
    for (int i = 0; i < 2 * kRows; ++i) {
      sums[i / 2][i % 2] = hn::Set(d, one + static_cast<float>(i));  // distinct: not one chain
    }
    for (std::int64_t r = 0; r < rounds; ++r) {
      for (auto& row : sums) {
        row[0] = hn::MulAdd(factor, factor, row[0]);
        row[1] = hn::MulAdd(factor, factor, row[1]);
      }
    }
    V total = hn::Zero(d);
    for (auto& row : sums) total = hn::Add(total, hn::Add(row[0], row[1]));
    one = hn::GetLane(total);
    return 2.0 * kRows * kCols * static_cast<double>(rounds);
  }

 private:
  friend struct PanelWalk<F32Engine>;

  // kCount rows × kPanels column panels, b_stride apart.
  template <int kCount, int kPanels>
  static void tile(const float* a, const float* b, std::int64_t b_stride, std::int64_t depth,
                   float* c, std::int64_t c_stride, Accumulate accumulate) {
    std::int64_t left = depth;
    for (; left > kSummed; left -= kSummed, a += kSummed * kCount, b += kSummed * kCols) {
      sum_tile<kCount, kPanels>(a, b, b_stride, kSummed, c, c_stride, accumulate);
      accumulate = Accumulate::add;
    }
    sum_tile<kCount, kPanels>(a, b, b_stride, left, c, c_stride, accumulate);
  }

  template <int kCount, int kPanels>
  static void sum_tile(const float* a, const float* b, std::int64_t b_stride, std::int64_t depth,
                       float* c, std::int64_t c_stride, Accumulate accumulate) {
    const hn::ScalableTag<float> d;
    using V = hn::Vec<hn::ScalableTag<float>>;
    constexpr int kVectors = 2 * kPanels;
    V sums[kCount][kVectors];
    for (auto& row : sums) {
      for (V& sum : row) sum = hn::Zero(d);
    }
    for (std::int64_t k = 0; k < depth; ++k, a += kCount, b += kCols) {
      V columns[kVectors];
      for (int j = 0; j < kVectors; ++j) {
        const float* column = b + j / 2 * b_stride + j % 2 * (kCols / 2);
        // One row waits for memory alone: 37 GB/s instead of 32 on two cores of Sapphire Rapids.
        if constexpr (kCount == 1) __builtin_prefetch(column + 128);
        columns[j] = hn::LoadU(d, column);
      }
      for (int i = 0; i < kCount; ++i) {
        const V row = hn::Set(d, a[i]);
        for (int j = 0; j < kVectors; ++j) sums[i][j] = hn::MulAdd(row, columns[j], sums[i][j]);
      }
    }
    store_sums(d, sums, c, c_stride, accumulate);
  }
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
