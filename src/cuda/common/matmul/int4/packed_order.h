// SPDX-License-Identifier: Apache-2.0
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
#pragma once

#include <cstdint>

#include "quire/dtype.h"
#include "quire/host_device.h"

namespace quire::cuda {

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

}  // namespace quire::cuda
