// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace quire::cuda::hopper {

// One of kParts parts of a tile, each a few groups of 32 columns.
template <int kPart, int kParts> struct TilePart {
  static constexpr int first(int groups) { return groups * kPart / kParts; }
  static constexpr int end(int groups) { return groups * (kPart + 1) / kParts; }
  static constexpr bool kIsLast = kPart + 1 == kParts;
};

using WholeTile = TilePart<0, 1>;

}  // namespace quire::cuda::hopper
