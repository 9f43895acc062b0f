// SPDX-License-Identifier: Apache-2.0
// From a source to Int4Order and back, a word or a run of codes at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/dtype.h"
#include "quire/host_device.h"
#include "quire/weight.h"

namespace quire::cuda {

// The order of an int4 weight for the Hopper kernels (WeightPacking::fragments_64): what a thread
// feeds to one warpgroup product stands in one word, what it needs for 64 columns in 16 bytes.
//
// A panel is 64 rows of W, a step 128 columns, a unit the 64 columns of half a step. Both are padded:
// scales behind the end are 0.
//   codes  [panel][step][unit 2][warp 4][lane 32][word 4]
//   sides  [panel][step][group][pair 32]: two scales, then two bf16 numbers -zero / 8
// Word j of a lane holds its part of columns 16j … 16j + 15 of the unit, rows r = 16 · warp + lane / 4
// and r + 8; pair 8 · warp + lane / 4 are these two rows. Code i of a word stands at bit (4i + 3) % 32:
// a rotation by 4j brings two codes to bits 3 – 6 of both halves, where they are subnormal numbers of
// bf16 and of f16. A side is padded to 8 bytes, or 16 with scales of f32.

inline constexpr int kPanelRows = 64;
inline constexpr int kPanelPairs = kPanelRows / 2;
inline constexpr int kStepColumns = 128;
inline constexpr int kUnitColumns = 64;
inline constexpr int kUnitBytes = kPanelRows * kUnitColumns / 2;
inline constexpr int kStepCodeBytes = 2 * kUnitBytes;
inline constexpr int kMaxSideBytes = 4 * kPanelPairs * 16;  // of a step: groups of 32, f32

struct Int4Order {
  int panels = 0;
  int steps = 0;
  int groups_per_step = 1;
  DType scale_dtype = DType::bf16;

  QUIRE_HOST_DEVICE int pair_bytes() const { return scale_dtype == DType::f32 ? 16 : 8; }
  // Of one panel's step.
  QUIRE_HOST_DEVICE int side_bytes() const { return groups_per_step * kPanelPairs * pair_bytes(); }
  // From the start of the storage.
  QUIRE_HOST_DEVICE std::int64_t code_offset(int panel, int step) const {
    return (std::int64_t{panel} * steps + step) * kStepCodeBytes;
  }
  QUIRE_HOST_DEVICE std::int64_t side_offset(int panel, int step) const {
    return code_offset(panels, 0) + (std::int64_t{panel} * steps + step) * side_bytes();
  }
  QUIRE_HOST_DEVICE std::int64_t bytes() const { return side_offset(panels, 0); }
};

inline Int4Order int4_order(std::int64_t rows, std::int64_t columns, std::int64_t group_size,
                            DType scale_dtype) {
  return {.panels = static_cast<int>((rows + kPanelRows - 1) / kPanelRows),
          .steps = static_cast<int>((columns + kStepColumns - 1) / kStepColumns),
          .groups_per_step = static_cast<int>(kStepColumns / group_size),
          .scale_dtype = scale_dtype};
}

// A code's place: row and column within the unit, to word and bit of the unit's 512 words.
struct CodePlace {
  int word;
  int bit;
};

QUIRE_HOST_DEVICE constexpr CodePlace code_place(int row, int column) {
  const int lane = row % 8 * 4 + column % 8 / 2;
  const int index = row % 16 / 8 + column % 16 / 8 * 2 + column % 2 * 4;
  return {.word = (row / 16 * 32 + lane) * 4 + column / 16, .bit = (4 * index + 3) % 32};
}

// A row's pair in a panel, and its place there.
QUIRE_HOST_DEVICE constexpr int pair_of(int row) {
  return row / 16 * 8 + row % 8;
}
QUIRE_HOST_DEVICE constexpr int place_in_pair(int row) {
  return row % 16 / 8;
}

// An int4, gptq or awq weight as it lies in memory, one number at a time: what packing reads.

struct Int4Source {
  WeightFormat format = WeightFormat::int4;
  const std::byte* data = nullptr;
  std::int64_t row_stride_bytes = 0;  // of the stored tensor's first axis
  int rows = 0;                       // of W
  int columns = 0;
  int group_size = 128;
  const std::byte* scale = nullptr;
  int scale_bytes = 2;
  std::int64_t scale_row_stride = 0;  // elements, from one row of W to the next
  std::int64_t scale_group_stride = 0;
  const std::byte* zeros = nullptr;  // int4: u8; gptq, awq: words of eight rows; null: all 8
  std::int64_t zero_row_stride = 0;  // elements
  std::int64_t zero_group_stride = 0;

  QUIRE_HOST_DEVICE unsigned code(int row, int column) const {
    if (format == WeightFormat::int4) {
      const auto byte = static_cast<unsigned>(data[row * row_stride_bytes + column / 2]);
      return byte >> (column % 2 * 4) & 15u;
    }
    if (format == WeightFormat::awq) {
      return word(data + column * row_stride_bytes, row / 8) >> (4 * awq_nibble(row)) & 15u;
    }
    return word(data + column / 8 * row_stride_bytes, row) >> (column % 8 * 4) & 15u;
  }
  QUIRE_HOST_DEVICE unsigned zero(int row, int group) const {
    constexpr unsigned kMiddleCode = 8;
    if (zeros == nullptr) return kMiddleCode;
    if (format == WeightFormat::int4) {
      return static_cast<unsigned>(zeros[row * zero_row_stride + group * zero_group_stride]);
    }
    const unsigned both = word(zeros, row / 8 * zero_row_stride + group * zero_group_stride);
    if (format == WeightFormat::awq) return both >> (4 * awq_nibble(row)) & 15u;
    return (both >> (row % 8 * 4) & 15u) + (format == WeightFormat::gptq ? 1 : 0);
  }
  // The scale's bytes, whatever they mean.
  QUIRE_HOST_DEVICE void copy_scale(int row, int group, std::byte* to) const {
    const std::int64_t index = row * scale_row_stride + group * scale_group_stride;
    for (int i = 0; i < scale_bytes; ++i) to[i] = scale[index * scale_bytes + i];
  }

 private:
  // AWQ interleaves: of eight rows, nibble 0 is row 0, nibble 1 is row 2, …
  QUIRE_HOST_DEVICE static int awq_nibble(int row) { return row % 8 / 2 + row % 2 * 4; }
  QUIRE_HOST_DEVICE static unsigned word(const std::byte* from, std::int64_t index) {
    return reinterpret_cast<const std::uint32_t*>(from)[index];
  }
};

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

// A plain int4, gptq, gptq_v2 or awq weight.
Int4Source make_source(const Weight& weight);
// The order of a packed weight.
Int4Order order_of(const Weight& packed);

}  // namespace quire::cuda
