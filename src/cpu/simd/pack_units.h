// SPDX-License-Identifier: Apache-2.0
// Packing for the engines written with Highway. A unit is 32 bits: one f32, or a pair of bf16. A
// panel is [units][kWidth]: unit u of vector v stands at u · kWidth + v.
#pragma once

#include <cstdint>

#include <hwy/highway.h>
#include "cpu/simd/tile.h"
#if defined(__AVX512F__)
#include "cpu/simd/transpose_avx512.h"
#endif

namespace quire::cpu::QUIRE_CPU_TARGET {

namespace hn = hwy::HWY_NAMESPACE;

template <typename Element> inline constexpr int kPerUnit = 4 / sizeof(Element);

// A unit whose second half lies past the end of the vector has a zero there.
template <typename Element>
inline std::uint32_t load_unit(const Element* vector, std::int64_t unit, std::int64_t depth) {
  std::uint32_t value = 0;
  if (vector == nullptr) return value;
  const std::int64_t first = unit * kPerUnit<Element>;
  const std::int64_t count = depth - first < kPerUnit<Element> ? 1 : kPerUnit<Element>;
  __builtin_memcpy(&value, vector + first, static_cast<std::size_t>(count) * sizeof(Element));
  return value;
}

template <typename Element> inline auto load_four_units(const Element* vector, std::int64_t unit) {
  const hn::Full128<std::uint32_t> units;
  const hn::Full128<Element> elements;
  if (vector == nullptr) return hn::Zero(units);
  return hn::BitCast(units, hn::LoadU(elements, vector + unit * kPerUnit<Element>));
}

// Four units of four vectors, as a 4 × 4 transpose, into rows of `width` units.
template <typename Element>
inline void pack_4x4(const Element* const (&vectors)[4], std::int64_t unit, std::int64_t width,
                     std::uint32_t* out) {
  const hn::Full128<std::uint32_t> d;
  const hn::Full128<std::uint64_t> d64;
  const auto r0 = load_four_units(vectors[0], unit);
  const auto r1 = load_four_units(vectors[1], unit);
  const auto r2 = load_four_units(vectors[2], unit);
  const auto r3 = load_four_units(vectors[3], unit);
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, out);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, out + width);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, out + 2 * width);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, out + 3 * width);
}

#if defined(__AVX512F__)
// Units [0, whole) of 16 vectors, whole being a multiple of 16, into rows of kWidth units.
template <int kWidth, typename Element>
inline void pack_16_vectors(const Element* const (&vectors)[16], std::int64_t whole,
                            std::uint32_t* out) {
  for (std::int64_t unit = 0; unit < whole; unit += 16, out += 16 * kWidth) {
    __m512i block[16];
    for (int v = 0; v < 16; ++v) {
      block[v] = vectors[v] == nullptr ? _mm512_setzero_si512()
                                       : _mm512_loadu_si512(vectors[v] + unit * kPerUnit<Element>);
    }
    transpose_16x16(block);
    for (int i = 0; i < 16; ++i) _mm512_storeu_si512(out + i * kWidth, block[i]);
  }
}
#endif

// Vectors [first, first + 4) of a panel, from `unit` to the end.
template <int kWidth, typename Element>
inline void pack_four_vectors(const Element* const (&group)[4], int first, std::int64_t unit,
                              std::int64_t depth, std::uint32_t* panel) {
  const std::int64_t units = (depth + kPerUnit<Element> - 1) / kPerUnit<Element>;
  const std::int64_t whole = depth / kPerUnit<Element> / 4 * 4;
  if (first + 4 <= kWidth) {
    for (; unit < whole; unit += 4) pack_4x4(group, unit, kWidth, panel + unit * kWidth + first);
  }
  for (; unit < units; ++unit) {
    for (int v = 0; v < 4 && first + v < kWidth; ++v) {
      panel[unit * kWidth + first + v] = load_unit(group[v], unit, depth);
    }
  }
}

// vectors[v] for v < count (null: zeros), zeros up to kWidth.
template <int kWidth, typename Element>
inline void pack_units(const Element* const* vectors, int count, std::int64_t depth,
                       std::uint32_t* panel) {
  std::int64_t done = 0;  // units
#if defined(__AVX512F__)
  if constexpr (kWidth % 16 == 0) {
    done = depth / kPerUnit<Element> / 16 * 16;
    for (int first = 0; first < kWidth; first += 16) {
      const Element* group[16] = {};
      for (int v = 0; v < 16 && first + v < count; ++v) group[v] = vectors[first + v];
      pack_16_vectors<kWidth>(group, done, panel + first);
    }
  }
#endif
  for (int first = 0; first < kWidth; first += 4) {
    const Element* group[4] = {};
    for (int v = 0; v < 4 && first + v < count; ++v) group[v] = vectors[first + v];
    pack_four_vectors<kWidth>(group, first, done, depth, panel);
  }
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
