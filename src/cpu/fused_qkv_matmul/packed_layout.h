// SPDX-License-Identifier: Apache-2.0
// Where the parts of a packed weight stand in its storage: a function of its shape alone.
//
// A panel is `width` consecutive rows of W (columns of the product). Numbers, K padded to `depth`:
//   32 bits  [depth][width]
//   16 bits  [depth / 2][width][2]; quads: [depth / 4][width][4]
//    8 bits  [depth / 8][2][width][4]: bytes k0 k4 k1 k5, then k2 k6 k3 k7
//    4 bits  [depth / 8][width], words of nibbles k0 k2 k4 k6 k1 k3 k5 k7, the lowest first
// One word of 8 or 4 bits thus gives pairs (k, k + 1) by a shift and a mask, and bytes for integer
// products by another. Scales, zeros and mins follow: [panel][group][width].
#pragma once

#include <cstdint>

#include "quire/weight.h"

namespace quire::cpu {

struct PackedLayout {
  WeightPacking packing;
  int width;
  int bits;  // of a number
  std::int64_t depth;
  std::int64_t panels;
  std::int64_t panel_bytes;  // of numbers
  std::int64_t group;        // columns of W that share a scale; K where all do, 0: no scales
  std::int64_t groups;
  DType scale_dtype;
  bool has_zeros;
  bool has_mins;  // w = scale · number + min
  DType min_dtype;
  std::int64_t scale_offset;  // bytes, from the start of the storage
  std::int64_t zero_offset;   // u8
  std::int64_t min_offset;
  std::int64_t perm_offset;  // i32 [K]
  std::int64_t bytes;        // of the storage
};

// The format, group size and packed fields of `weight` decide, its tensors do not; has_perm: room
// for a permutation.
PackedLayout packed_layout(const Weight& weight, bool has_perm);

// What a plain weight will say of itself once it is packed so.
PackedShape packed_shape(const Weight& weight);

}  // namespace quire::cpu
