// SPDX-License-Identifier: Apache-2.0
// The last tiles of a launch, fewer than there are CTAs, cut along their keys so that
// every CTA has a part of them. Plain arithmetic over the number of tiles, so that the host
// can test it.
//
//   tiles      | 0 1 2 … whole - 1 |  tile 0      |  tile 1      |  tile 2      |
//   work       | a tile each       |  part 0    |  part 1  |  part 2  | part 3  |
//
// A part is at most a tile long: it has splits of one tile or of two neighbours. Parts are taken as
// CTAs come free, and those that come late are slow ones (multiprocessors differ by
// 2 – 3 %): the later a part, the shorter.
#pragma once

#include <cstdint>

#include "quire/host_device.h"

namespace quire::cuda {

// Blocks of keys. A split more costs its sums' way through memory, about that of four blocks; with
// 8 of 68 saved the launch takes as long as without, with 16 of 68 1 % less.
inline constexpr int kFewestSplitBlocks = 4;
inline constexpr int kFewestSavedBlocks = 12;

struct TailCuts {
  static constexpr int kUnits = 4096;  // of a tile's length

  int whole = 0;  // tiles in front that stay whole
  int tiles = 0;  // behind them
  int parts = 0;  // that those are cut into
  int bend = 0;   // units by which the first part is longer than the mean, and the last shorter

  // Where a part begins, in units of the tail.
  QUIRE_HOST_DEVICE int begin(int part) const {
    return tiles * kUnits * part / parts + bend * part * (parts - part) / parts;
  }
  // Tiles of the tail that a part has splits of: [first_tile, end_tile).
  QUIRE_HOST_DEVICE int first_tile(int part) const { return begin(part) / kUnits; }
  QUIRE_HOST_DEVICE int end_tile(int part) const { return (begin(part + 1) - 1) / kUnits + 1; }
  // The part that a tile of the tail begins in.
  QUIRE_HOST_DEVICE int first_part(int tile) const {
    int part = tile * parts / tiles;  // parts begin no earlier than equal ones
    while (part > 0 && begin(part) > tile * kUnits) --part;
    return part;
  }

  // The block at which `part` begins in a tile of `blocks` blocks; 0 and `blocks` cut nothing off.
  QUIRE_HOST_DEVICE int cut(int part, int tile, int blocks) const {
    const int offset = begin(part) - tile * kUnits;
    if (offset <= 0) return 0;
    if (offset >= kUnits || !is_long(blocks)) return blocks;
    const auto block = static_cast<int>(std::int64_t{offset} * blocks / kUnits);
    if (block < kFewestSplitBlocks) return 0;
    return blocks - block < kFewestSplitBlocks ? blocks : block;
  }

  // The shortest part of the tile is long enough that at most one cut falls near either of its
  // ends. A shorter tile is the work of the part that it begins in.
  QUIRE_HOST_DEVICE bool is_long(int blocks) const {
    const int shortest = tiles * kUnits / parts - bend;
    return std::int64_t{shortest} * blocks >= 2 * kFewestSplitBlocks * kUnits;
  }
};

// `blocks`: of the tail's first tile, which is its longest as a rule. `slowness`: in thousandths,
// by which CTAs that come last are slower than the mean.
QUIRE_HOST_DEVICE inline TailCuts cut_tail(int tiles, int thread_blocks, int blocks, int slowness) {
  TailCuts cuts{.whole = tiles};
  const int rest = tiles % thread_blocks;
  const int most = rest * blocks / (2 * kFewestSplitBlocks);
  const int parts = most < thread_blocks ? most : thread_blocks;
  if (parts <= rest || blocks - rest * blocks / parts < kFewestSavedBlocks) return cuts;
  cuts = {.whole = tiles - rest, .tiles = rest, .parts = parts};
  if (parts < thread_blocks) return cuts;
  // Late by that much of the tiles before. The first part stays below a tile, the last
  // above half the mean.
  const int late = tiles / thread_blocks * TailCuts::kUnits * slowness / 1000;
  const int mean = rest * TailCuts::kUnits / parts;
  const int room = TailCuts::kUnits - mean < mean / 2 ? TailCuts::kUnits - mean : mean / 2;
  cuts.bend = late < room ? late : room;
  return cuts;
}

// A tile's splits: where they are kept until the last of them is there.
struct TileSplits {
  int slot = -1;       // of this split; -1: it is the whole tile
  int first_slot = 0;  // of the split with the tile's first keys
  int count = 1;

  QUIRE_HOST_DEVICE int slot_of(int split) const {
    return split == 0 ? first_slot : (first_slot / 2 + split) * 2;
  }
};

// A part has two slots, the second for its second tile.
QUIRE_HOST_DEVICE inline TileSplits tile_splits(const TailCuts& cuts, int part, int tile,
                                                int blocks) {
  if (!cuts.is_long(blocks)) return {};
  int first = cuts.first_part(tile);
  if (cuts.cut(first + 1, tile, blocks) == 0) ++first;
  int last = tile + 1 < cuts.tiles ? cuts.first_part(tile + 1) : cuts.parts;
  if (cuts.cut(last, tile, blocks) == blocks) --last;
  if (cuts.cut(last, tile, blocks) == blocks) --last;
  if (last <= first) return {};
  const auto slot = [&](int at) { return 2 * at + (cuts.first_tile(at) == tile ? 0 : 1); };
  return {.slot = slot(part), .first_slot = slot(first), .count = last - first + 1};
}

}  // namespace quire::cuda
