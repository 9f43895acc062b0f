// SPDX-License-Identifier: Apache-2.0
// The contract of the matrix engine, written once per target:
// C [rows, cols] f32 (+)= A [rows, depth] · B [depth, cols].
//
// A is packed in panels of kRows rows, B in panels of kCols columns; the order of elements inside a
// panel is the engine's own business (AMX tiles, BFMMLA pairs, …), but a panel is in order of depth:
// its first kDepth · i columns are a panel of that depth. Depth is padded with zeros to a multiple
// of kDepth. Panels follow each other without gaps: panel p starts at p · a_panel_elements(depth).
//
// Every output is one sum over the depth in one order, whatever the number of rows or columns of
// the call: a token's result does not depend on its batch. An engine that has kSummed sums so much of the
// depth for itself before it joins the rest.
//
// clang-format off
//   struct Engine {
//     using Element = …;  // std::uint16_t for bf16, float for f32
//     static constexpr int kRows, kCols, kDepth;
//     // Holds the unit's state (AMX: the tile configuration). multiply needs one alive in its thread.
//     class Session;
//     // rows[i] is a row of A, or null for a zero row; rows [num_rows, kRows) are zeros.
//     static void pack_a(const Element* const* rows, int num_rows, std::int64_t depth,
//                        Element* panel);
//     // The same from f32, rounded to Element: the probabilities of attention. stride in elements.
//     static void pack_a_f32(const float* rows, std::int64_t stride, int num_rows,
//                            std::int64_t depth, Element* panel);
//     // Column n of B is the contiguous vector columns[n] (a weight row, a key), null: zeros.
//     static void pack_b_columns(const Element* const* columns, int num_columns,
//                                std::int64_t depth, Element* panel);
//     // Row k of B is rows[k] (a value row), null: zeros; num_columns of it belong to this panel.
//     static void pack_b_rows(const Element* const* rows, std::int64_t depth, int num_columns,
//                             Element* panel);
//     // c[i · c_stride + j] for all rows and columns of the panels, padding included.
//     static void multiply(const Element* a, int row_panels, const Element* b, int col_panels,
//                          std::int64_t depth, float* c, std::int64_t c_stride,
//                          Accumulate accumulate, PanelStrides strides = {});
//     // Few rows: one panel of `width` rows instead of kRows, width being narrow_rows(rows).
//     static constexpr int narrow_rows(int rows);
//     static void pack_a_narrow(const Element* const* rows, int num_rows, int width,
//                               std::int64_t depth, Element* panel);
//     static void multiply_narrow(const Element* a, int width, const Element* b, int col_panels,
//                                 std::int64_t depth, float* c, std::int64_t c_stride,
//                                 Accumulate accumulate, std::int64_t b_stride);
//     // The engine's product instruction alone, on registers: its ceiling. Returns flops done.
//     static double spin(std::int64_t rounds);
//   };
// clang-format on
#pragma once

#include <cstdint>

#ifndef QUIRE_CPU_TARGET
#error "compiled once per target, with QUIRE_CPU_TARGET=<namespace>"
#endif

namespace quire::cpu::QUIRE_CPU_TARGET {

enum class Accumulate : std::uint8_t { overwrite, add };

// Whether an engine multiplies the bare numbers of a weight, whose scales are left to the sums, or values.
template <typename Engine>
inline constexpr bool kTakesNumbers = sizeof(typename Engine::Element) == 2;

// Elements between row panels and between column panels that are parts of deeper ones; 0: panels
// follow each other.
struct PanelStrides {
  std::int64_t a = 0;
  std::int64_t b = 0;
};

constexpr std::int64_t round_up_to(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// 1, 2, 4, … up to the engine's rows: the widths of narrow panels that vector engines are compiled
// for.
constexpr int power_of_two_rows(int rows, int most) {
  int width = 1;
  while (width < rows && width < most) width *= 2;
  return width < most ? width : most;
}

// Elements of one packed panel.
template <typename Engine> constexpr std::int64_t a_panel_elements(std::int64_t depth) {
  return Engine::kRows * round_up_to(depth, Engine::kDepth);
}
template <typename Engine> constexpr std::int64_t b_panel_elements(std::int64_t depth) {
  return Engine::kCols * round_up_to(depth, Engine::kDepth);
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
