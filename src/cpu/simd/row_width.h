// SPDX-License-Identifier: Apache-2.0
// From the width of a narrow row panel to the tile compiled for it.
#pragma once

#include "cpu/simd/tile.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

template <int kWidth> struct RowTag { static constexpr int kRows = kWidth; };

// function(RowTag) for a width of power_of_two_rows(rows, kMost).
template <int kMost, typename Function> inline void on_width(int width, Function&& function) {
  if constexpr (kMost > 1) {
    if (width == 1) return function(RowTag<1>{});
  }
  if constexpr (kMost > 2) {
    if (width == 2) return function(RowTag<2>{});
  }
  if constexpr (kMost > 4) {
    if (width == 4) return function(RowTag<4>{});
  }
  function(RowTag<kMost>{});
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
