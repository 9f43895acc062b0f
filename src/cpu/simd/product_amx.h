// SPDX-License-Identifier: Apache-2.0
// Many row panels times a few column panels on AMX, into the sums of a projection.
//
// Reading and writing sums as C tiles would stop the tile unit at the end of every depth block.
// Instead a block's product goes to a small buffer in the L1 cache, and the vector units add it to
// the sums (and scale it) between the tile instructions of the next block. Tiles of a step are
// loaded one step ahead, across blocks too.
#pragma once

#include "cpu/simd/line_prefetch.h"
#include "cpu/simd/tile_int8_amx.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

template <typename Numbers> struct AmxProduct {
  using Element = typename Numbers::Element;
  using Sum = typename Numbers::Sum;

  const Element* a;      // row panels of one depth block
  std::int64_t a_panel;  // elements between them
  const Element* b;
  std::int64_t b_panel;
  std::int64_t steps;        // of Numbers::kDepth k, in a depth block
  std::int64_t group_steps;  // after so many the partial sums are scaled
  int panel_rows = 16;       // of C and A tiles; fewer: there is one row panel
  Sum* partial;              // [2][32][32]
  float* sums;               // of row panel 0
  std::int64_t sums_stride;
  const float* column_scales;  // [groups][scales_stride], null: ones
  std::int64_t scales_stride;
  const float* row_scales;  // [groups][row_scales_stride], null: ones
  std::int64_t row_scales_stride;
  const float* column_mins;  // [groups][scales_stride], null: none
  const float* row_sums;     // of X, [groups][row_sums_stride], with column_mins
  std::int64_t row_sums_stride;
  Accumulate accumulate;  // of the first group
  LinePrefetch* prefetch;

  void run(int row_panels, int col_panels) const {
    const int row_blocks = (row_panels + 1) / 2;
    const int col_blocks = (col_panels + 1) / 2;
    const std::int64_t lines = prefetch->lines() / (row_blocks * col_blocks * steps) + 1;
    const int rows = row_panels / 2;
    const int cols = col_panels / 2;
    blocks<2, 2>({0, rows}, {0, cols}, lines);
    blocks<1, 2>({2 * rows, row_panels % 2}, {0, cols}, lines);
    blocks<2, 1>({0, rows}, {2 * cols, col_panels % 2}, lines);
    blocks<1, 1>({2 * rows, row_panels % 2}, {2 * cols, col_panels % 2}, lines);
  }

 private:
  static constexpr std::int64_t kTile = 16 * Numbers::kDepth;  // elements
  static constexpr int kPartialStride = 32;

  // The tiles of one step: A in 4 and 5, B in 6 and 7.
  template <int kR, int kC> struct Loads {
    static constexpr std::int64_t kRowBytes = Numbers::kDepth * sizeof(Element);

    const Element* a;
    std::int64_t a_panel;
    const Element* b;
    std::int64_t b_panel;

    void first_a(std::int64_t at) const { tile_load_streamed<4>(a + at, kRowBytes); }
    void second_a(std::int64_t at) const {
      if constexpr (kR == 2) tile_load_streamed<5>(a + a_panel + at, kRowBytes);
    }
    void first_b(std::int64_t at) const { tile_load<6>(b + at, 64); }
    void second_b(std::int64_t at) const {
      if constexpr (kC == 2) tile_load<7>(b + b_panel + at, 64);
    }
  };

  // One step's products; each tile is replaced as soon as its last product has been started.
  template <int kR, int kC> static void step(const Loads<kR, kC>& next, std::int64_t at) {
    Numbers::template multiply<0, 4, 6>();
    if constexpr (kC == 2) Numbers::template multiply<1, 4, 7>();
    next.first_a(at);
    if constexpr (kR == 2) Numbers::template multiply<2, 5, 6>();
    next.first_b(at);
    if constexpr (kR == 2 && kC == 2) Numbers::template multiply<3, 5, 7>();
    next.second_a(at);
    next.second_b(at);
  }

  template <int kR, int kC> static void zero_tiles() {
    tile_zero<0>();
    if constexpr (kC == 2) tile_zero<1>();
    if constexpr (kR == 2) tile_zero<2>();
    if constexpr (kR == 2 && kC == 2) tile_zero<3>();
  }

  // Partial sums of a group that wait to be added to the sums, a few rows at a time.
  template <int kC> struct Pending {
    const Sum* values;
    float* sums;
    std::int64_t sums_stride;
    const float* row_scales;  // null: ones
    const float* row_sums;    // null: no mins
    __m512 column_scales[kC];
    __m512 column_mins[kC];
    __mmask16 kept;  // lanes of the old sums that count: all or none
    int rows = 0;    // that are left

    void add(int count) {
      if (count > rows) count = rows;
      rows -= count;
      if (row_sums != nullptr) {
        row_scales != nullptr ? add_rows<true, true>(count) : add_rows<false, true>(count);
      } else {
        row_scales != nullptr ? add_rows<true, false>(count) : add_rows<false, false>(count);
      }
    }

   private:
    template <bool kScalesRows, bool kHasMins> HWY_INLINE void add_rows(int count) {
      for (; count > 0; --count, values += kPartialStride, sums += sums_stride) {
        const __m512 row = _mm512_set1_ps(kScalesRows ? *row_scales++ : 1.0f);
        __m512 sum = _mm512_set1_ps(kHasMins ? *row_sums++ : 0.0f);
        if constexpr (kScalesRows && kHasMins) sum = _mm512_mul_ps(sum, row);
        for (int c = 0; c < kC; ++c) {
          const __m512 scale =
              kScalesRows ? _mm512_mul_ps(column_scales[c], row) : column_scales[c];
          const __m512 old = _mm512_maskz_loadu_ps(kept, sums + 16 * c);
          __m512 value = _mm512_fmadd_ps(Numbers::load_sums(values + 16 * c), scale, old);
          if constexpr (kHasMins) value = _mm512_fmadd_ps(column_mins[c], sum, value);
          _mm512_storeu_ps(sums + 16 * c, value);
        }
      }
    }
  };

  // What is still pending is added between the stores, which alone would keep the store port busy.
  template <int kR, int kC> static void store_tiles(Sum* to, Pending<kC>& pending) {
    constexpr std::int64_t kBytes = kPartialStride * 4;
    constexpr int kTiles = kR * kC;
    const int share = (pending.rows + kTiles - 1) / kTiles;
    pending.add(share);
    tile_store<0>(to, kBytes);
    if constexpr (kC == 2) {
      pending.add(share);
      tile_store<1>(to + 16, kBytes);
    }
    if constexpr (kR == 2) {
      pending.add(share);
      tile_store<2>(to + 16 * kPartialStride, kBytes);
    }
    if constexpr (kR == 2 && kC == 2) {
      pending.add(share);
      tile_store<3>(to + 16 * kPartialStride + 16, kBytes);
    }
  }

  // Of row panel m and column panel n.
  template <int kR, int kC>
  void set_pending(std::int64_t m, std::int64_t n, std::int64_t group, const Sum* values,
                   Pending<kC>& next) const {
    next.values = values;
    next.sums = sums + 16 * m * sums_stride + 16 * n;
    next.sums_stride = sums_stride;
    next.row_scales =
        row_scales == nullptr ? nullptr : row_scales + group * row_scales_stride + 16 * m;
    next.row_sums = row_sums == nullptr ? nullptr : row_sums + group * row_sums_stride + 16 * m;
    const std::int64_t first = group * scales_stride + 16 * n;
    for (int c = 0; c < kC; ++c) {
      next.column_scales[c] = column_scales == nullptr
                                  ? _mm512_set1_ps(1.0f)
                                  : _mm512_loadu_ps(column_scales + first + 16 * c);
      if (row_sums != nullptr) {
        next.column_mins[c] = _mm512_loadu_ps(column_mins + first + 16 * c);
      }
    }
    next.kept = group == 0 && accumulate == Accumulate::overwrite ? 0 : 0xffff;
    next.rows = kR * panel_rows;
  }

  struct Blocks {
    int first;  // panel
    int count;
  };

  // Blocks of kR row panels × kC column panels, the rows of a column block one after another.
  template <int kR, int kC> void blocks(Blocks rows, Blocks cols, std::int64_t lines) const {
    if (rows.count == 0 || cols.count == 0) return;
    const Element* first_a = a + rows.first * a_panel;
    Loads<kR, kC> loads{first_a, a_panel, b + cols.first * b_panel, b_panel};
    loads.first_a(0);
    loads.first_b(0);
    loads.second_a(0);
    loads.second_b(0);
    Pending<kC> pending;
    int parity = 0;
    for (int n = 0; n < cols.count; ++n) {
      for (int m = 0; m < rows.count; ++m) {
        Loads<kR, kC> after = loads;
        if (m + 1 < rows.count) {
          after.a += kR * a_panel;
        } else if (n + 1 < cols.count) {
          after.a = first_a;
          after.b += kC * b_panel;
        }  // else the last one loads something known again
        for (std::int64_t at = 0, group = 0; at < steps; at += group_steps, ++group) {
          const std::int64_t end = at + group_steps < steps ? at + group_steps : steps;
          Sum* values = partial + parity * kPartialStride * kPartialStride;
          multiply_group(loads, after, at, end, lines, pending);
          store_tiles<kR, kC>(values, pending);
          set_pending<kR, kC>(rows.first + kR * m, cols.first + kC * n, group, values, pending);
          parity = 1 - parity;
        }
        loads = after;
      }
    }
    pending.add(pending.rows);
  }

  // Steps [at, end), whose first tiles are loaded. What is pending is added on the way: between the
  // stores of the tiles where there is one step.
  template <int kR, int kC>
  void multiply_group(const Loads<kR, kC>& loads, const Loads<kR, kC>& after, std::int64_t at,
                      std::int64_t end, std::int64_t lines, Pending<kC>& pending) const {
    const auto rows = static_cast<int>((pending.rows + end - at - 1) / (end - at));
    zero_tiles<kR, kC>();
    for (std::int64_t s = at + 1; s <= end; ++s) {
      s < steps ? step(loads, s * kTile) : step(after, 0);
      prefetch->advance(lines);
      if (end - at > 1) pending.add(rows);
    }
  }
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
