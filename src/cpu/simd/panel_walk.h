// SPDX-License-Identifier: Apache-2.0
// How an engine of vector instructions goes over packed panels: what its products share, whatever
// they are made of. The engine brings kRows, kCols, kDepth and
//   tile<kCount, kPanels>(a, b, b_stride, steps, c, c_stride, accumulate)
// which multiplies kCount rows by kPanels column panels over `steps` times kDepth of depth.
#pragma once

#include "cpu/simd/pack_units.h"
#include "cpu/simd/row_width.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

template <typename Engine> struct PanelWalk {
  static constexpr int narrow_rows(int rows) { return power_of_two_rows(rows, Engine::kRows); }

  template <typename Element>
  static void pack_a_narrow(const Element* const* rows, int num_rows, int width, std::int64_t depth,
                            Element* panel) {
    on_width<Engine::kRows>(width, [&](auto tag) {
      pack_units<decltype(tag)::kRows>(rows, num_rows, depth,
                                       reinterpret_cast<std::uint32_t*>(panel));
    });
  }

  template <typename Element>
  static void multiply(const Element* a, int row_panels, const Element* b, int col_panels,
                       std::int64_t depth, float* c, std::int64_t c_stride, Accumulate accumulate,
                       PanelStrides strides = {}) {
    constexpr int kRows = Engine::kRows;
    constexpr int kCols = Engine::kCols;
    const std::int64_t padded = round_up_to(depth, Engine::kDepth);
    const std::int64_t a_stride = strides.a == 0 ? kRows * padded : strides.a;
    const std::int64_t b_stride = strides.b == 0 ? kCols * padded : strides.b;
    for (int n = 0; n < col_panels; ++n) {
      for (int m = 0; m < row_panels; ++m) {
        Engine::template tile<kRows, 1>(a + m * a_stride, b + n * b_stride, 0,
                                        padded / Engine::kDepth,
                                        c + m * kRows * c_stride + n * kCols, c_stride, accumulate);
      }
    }
  }

  // Fewer rows leave registers for a second column panel. One row reads as many as there are
  // registers for, because memory is faster in several places at once.
  template <typename Element>
  static void multiply_narrow(const Element* a, int width, const Element* b, int col_panels,
                              std::int64_t depth, float* c, std::int64_t c_stride,
                              Accumulate accumulate, std::int64_t b_stride) {
    constexpr int kCols = Engine::kCols;
    const std::int64_t steps = round_up_to(depth, Engine::kDepth) / Engine::kDepth;
    on_width<Engine::kRows>(width, [&](auto tag) {
      constexpr int kCount = decltype(tag)::kRows;
      constexpr int kMost = Engine::kRows >= 8 ? 8 : 4;
      constexpr int kPanels = kCount == Engine::kRows ? 1 : kCount == 1 ? kMost : 2;
      int n = 0;
      for (; n + kPanels <= col_panels; n += kPanels) {
        Engine::template tile<kCount, kPanels>(a, b + n * b_stride, b_stride, steps, c + n * kCols,
                                               c_stride, accumulate);
      }
      for (; n < col_panels; ++n) {
        Engine::template tile<kCount, 1>(a, b + n * b_stride, 0, steps, c + n * kCols, c_stride,
                                         accumulate);
      }
    });
  }
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
