// SPDX-License-Identifier: Apache-2.0
// From a source to Int4Order and back, a word or a run of codes at a time.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/int4/packed_order.h"
#include "cuda/hopper/fused_qkv_matmul/int4/source.h"

namespace quire::cuda::hopper {

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

// The scale and zero of one row of the storage and one of its groups, both padded.
QUIRE_HOST_DEVICE inline void pack_side(const Int4Source& from, const Int4Order& order, int row,
                                        int group, std::byte* storage) {
  const int step = group / order.groups_per_step;
  std::byte* side = storage + order.side_offset(row / kPanelRows, step);
  const int place = group % order.groups_per_step * kPanelRows + side_place(row % kPanelRows);
  std::byte* scale = side + place * order.scale_bytes;
  const bool is_inside = row < from.rows && group * from.group_size < from.columns;
  if (is_inside) {
    from.copy_scale(row, group, scale);
  } else {
    for (int i = 0; i < order.scale_bytes; ++i) scale[i] = std::byte{0};
  }
  side[order.zeros_offset() + place] =
      static_cast<std::byte>(is_inside ? from.zero(row, group) : kMiddleZero);
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
  const int group = column % kStepColumns * order.groups_per_step / kStepColumns;
  return storage + order.side_offset(row / kPanelRows, column / kStepColumns) +
         (group * kPanelRows + side_place(row % kPanelRows)) * order.scale_bytes;
}
QUIRE_HOST_DEVICE inline int packed_zero(const std::byte* storage, const Int4Order& order, int row,
                                         int column) {
  const int group = column % kStepColumns * order.groups_per_step / kStepColumns;
  return static_cast<int>(
      storage[order.side_offset(row / kPanelRows, column / kStepColumns) + order.zeros_offset() +
              group * kPanelRows + side_place(row % kPanelRows)]);
}

}  // namespace quire::cuda::hopper
