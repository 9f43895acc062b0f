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

// All of a tile that is half as wide as the others.
struct HalfTile {
  static constexpr int first(int) { return 0; }
  static constexpr int end(int groups) { return groups / 2; }
  static constexpr bool kIsLast = true;
};

}  // namespace quire::cuda::hopper
