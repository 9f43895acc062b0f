// SPDX-License-Identifier: Apache-2.0
// From a source to Int4Order and back, a word or a run of codes at a time.
#pragma once

#include "cuda/common/matmul/int4/packed_order.h"
#include "cuda/common/matmul/int4/source.h"

namespace quire::cuda {

// Word `index` of the storage's codes.
QUIRE_HOST_DEVICE inline std::uint32_t packed_word(const Int4Source& from, const Int4Order& order,
                                                   std::int64_t index) {
  constexpr int kUnitWords = kUnitBytes / 4;
  const std::int64_t unit = index / kUnitWords;  // of all
  const int within = static_cast<int>(index % kUnitWords);
  const int lane = within / 4 % 32;
  const int first_row =
      static_cast<int>(unit / (2 * order.steps)) * kPanelRows + within / 128 * 16 + lane / 4;
  const int first_column =
      static_cast<int>(unit % (2 * order.steps)) * kUnitColumns + within % 4 * 16 + lane % 4 * 2;
  std::uint32_t word = 0;
  for (int i = 0; i < 8; ++i) {
    const int row = first_row + i % 2 * 8;
    const int column = first_column + i % 4 / 2 * 8 + i / 4;
    if (row >= from.rows || column >= from.columns) continue;
    const std::uint32_t code = from.code(row, column);
    const int bit = code_place(row % kPanelRows, column % kUnitColumns).bit;
    word |= code << bit | (bit > 28 ? code >> (32 - bit) : 0);
  }
  return word;
}

// Where the pair of a row stands, and the group that holds `column`.
QUIRE_HOST_DEVICE inline std::int64_t pair_offset(const Int4Order& order, int row, int column) {
  const int group = column % kStepColumns * order.groups_per_step / kStepColumns;
  return order.side_offset(row / kPanelRows, column / kStepColumns) +
         (group * kPanelPairs + pair_of(row % kPanelRows)) * order.pair_bytes();
}

// bf16 of a number that has eight bits.
QUIRE_HOST_DEVICE inline std::uint16_t zero_bits(unsigned zero) {
  int exponent = 0;
  while (zero >> exponent > 1) ++exponent;
  if (zero == 0) return 0x8000;
  const unsigned mantissa = (zero << (7 - exponent)) & 0x7f;
  return static_cast<std::uint16_t>(0x8000u | static_cast<unsigned>(exponent + 127 - 3) << 7 |
                                    mantissa);
}

// The scale and zero of one row of the storage and one of its groups, both padded.
QUIRE_HOST_DEVICE inline void pack_side(const Int4Source& from, const Int4Order& order, int row,
                                        int group, std::byte* storage) {
  constexpr unsigned kMiddleCode = 8;
  const int scale_bytes = order.pair_bytes() == 16 ? 4 : 2;
  const int place = place_in_pair(row % kPanelRows);
  std::byte* pair =
      storage + pair_offset(order, row, group * (kStepColumns / order.groups_per_step));
  std::byte* scale = pair + place * scale_bytes;
  const bool is_inside = row < from.rows && group * from.group_size < from.columns;
  if (is_inside) {
    from.copy_scale(row, group, scale);
  } else {
    for (int i = 0; i < scale_bytes; ++i) scale[i] = std::byte{0};
  }
  const std::uint16_t bits = zero_bits(is_inside ? from.zero(row, group) : kMiddleCode);
  pair[2 * scale_bytes + 2 * place] = static_cast<std::byte>(bits & 0xff);
  pair[2 * scale_bytes + 2 * place + 1] = static_cast<std::byte>(bits >> 8);
}

// Eight codes of a row from a multiple of eight columns on, the first in the lowest bits.
QUIRE_HOST_DEVICE inline std::uint32_t unpack_codes(const std::byte* storage,
                                                    const Int4Order& order, int row, int column) {
  const std::byte* step = storage + order.code_offset(row / kPanelRows, column / kStepColumns);
  const auto* unit = reinterpret_cast<const std::uint32_t*>(step + column % kStepColumns /
                                                                       kUnitColumns * kUnitBytes);
  std::uint32_t codes = 0;
  for (int i = 0; i < 8; ++i) {
    const CodePlace place = code_place(row % kPanelRows, column % kUnitColumns + i);
    const std::uint32_t word = unit[place.word];
    codes |= ((word >> place.bit | (place.bit > 28 ? word << (32 - place.bit) : 0)) & 15u)
             << (4 * i);
  }
  return codes;
}

// Where a row's scale of the group that holds `column` stands, and its zero.
QUIRE_HOST_DEVICE inline const std::byte* packed_scale(const std::byte* storage,
                                                       const Int4Order& order, int row,
                                                       int column) {
  return storage + pair_offset(order, row, column) +
         place_in_pair(row % kPanelRows) * (order.pair_bytes() / 4);
}
QUIRE_HOST_DEVICE inline int packed_zero(const std::byte* storage, const Int4Order& order, int row,
                                         int column) {
  const std::byte* zero = storage + pair_offset(order, row, column) + order.pair_bytes() / 2 +
                          2 * place_in_pair(row % kPanelRows);
  const unsigned bits = static_cast<unsigned>(zero[0]) | static_cast<unsigned>(zero[1]) << 8;
  if (bits == 0x8000) return 0;
  const unsigned mantissa = 0x80 | (bits & 0x7f);
  return static_cast<int>(mantissa >> (7 - ((bits >> 7 & 0xff) - 127 + 3)));
}

}  // namespace quire::cuda
