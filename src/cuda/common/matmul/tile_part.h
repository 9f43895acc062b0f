// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace quire::cuda {

// One of kParts parts of a tile, each a few groups of 32 columns.
template <int kPart, int kParts> struct TilePart {
  static constexpr int first(int groups) { return groups * kPart / kParts; }
  static constexpr int end(int groups) { return groups * (kPart + 1) / kParts; }
  static constexpr bool kIsLast = kPart + 1 == kParts;
};

using WholeTile = TilePart<0, 1>;

// All of a tile of kColumns columns.
template <int kColumns> struct TailTile {
  static constexpr int first(int) { return 0; }
  static constexpr int end(int) { return kColumns / 32; }
  static constexpr bool kIsLast = true;
};

// The groups of a tile that are stored at once where only half of them can wait, and Part of the others.
struct ImmediateHalf {
  static constexpr int first(int) { return 0; }
  static constexpr int end(int groups) { return groups - groups / 2; }
  static constexpr bool kIsLast = false;
};
template <typename Part> struct DeferredHalf {
  static constexpr int first(int groups) {
    return ImmediateHalf::end(groups) + Part::first(groups / 2);
  }
  static constexpr int end(int groups) {
    return ImmediateHalf::end(groups) + Part::end(groups / 2);
  }
  static constexpr bool kIsLast = Part::kIsLast;
};

}  // namespace quire::cuda
