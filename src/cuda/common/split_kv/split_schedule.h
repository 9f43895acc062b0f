// SPDX-License-Identifier: Apache-2.0
// The work of a batch as a line of key blocks, and where it is cut.
//
//   sequence 0                              sequence 1
//   | item 0      | item 1      | …         | item 0   | item 1   | …       items: KV heads × tiles
//   |F|0 1 2 3 4 5|F|0 1 2 3 4 5|           |F|0 1 2 3 |                    F: cost of an item
//        ^ cut 1       ^ cut 2         ^ cut 3                              thread block c: [c, c + 1)
//
// Everything follows from lengths in device memory: no plan on the host, so that a captured graph
// replays with other lengths. A thread block touches any number of items but shares at most two with
// others: the one that it finds begun and the one that it leaves unfinished. So the pieces to be
// merged are bounded by the thread blocks. Flash decode walks several lines side by side (DecodeLines): a
// thread block here is then one of its line's parts.
#pragma once

#include <cstdint>

#include "cuda/common/split_kv/params.h"

namespace quire::cuda {

inline constexpr int kBlockKeys = 64;

// Invariant pieces: at most kMaxPieces of an item, at least kMinPieceBlocks long.
inline constexpr int kMaxPieces = 16;
inline constexpr int kMinPieceBlocks = 4;

QUIRE_HOST_DEVICE constexpr int ceil_div(int a, int b) {
  return (a + b - 1) / b;
}

struct SequenceWork {
  int first_token = 0;  // row of q
  int tokens = 0;
  int cached = 0;
  int first_block = 0;  // of keys that any of its tokens sees
  int blocks = 0;
  int items = 0;

  QUIRE_HOST_DEVICE int num_keys() const { return cached + tokens; }
  // Costs fit an int: 2^31 key blocks would be terabytes.
  QUIRE_HOST_DEVICE int item_cost(const DecodeSplit& split) const {
    return split.item_cost + blocks;
  }
  QUIRE_HOST_DEVICE int cost(const DecodeSplit& split) const { return items * item_cost(split); }
};

QUIRE_HOST_DEVICE inline SequenceWork sequence_work(const DecodeBatch& batch, int sequence) {
  SequenceWork work;
  work.first_token = static_cast<int>(batch.row_offsets[sequence]);
  work.tokens = static_cast<int>(batch.row_offsets[sequence + 1]) - work.first_token;
  work.cached = static_cast<int>(batch.cache_lengths[sequence]);
  if (work.tokens <= 0) return work;
  const int num_keys = work.num_keys();
  const int last = batch.visible.of(num_keys - 1, num_keys).end;
  work.first_block = batch.visible.of(work.cached, num_keys).first / kBlockKeys;
  work.blocks = (last + kBlockKeys - 1) / kBlockKeys - work.first_block;
  // As a rule one; a division is a hundred cycles before the first copy.
  const int tiles = work.tokens <= batch.tile_tokens ? 1 : ceil_div(work.tokens, batch.tile_tokens);
  work.items = batch.kv_heads * tiles;
  return work;
}

// Cuts of a line of cost `total` into `parts` of equal cost: the first `longer` parts are longer by one.
struct WorkCuts {
  int total = 0;
  int parts = 1;
  int length = 0;
  int longer = 0;

  QUIRE_HOST_DEVICE int at(int cut) const { return cut * length + (cut < longer ? cut : longer); }
  // The first cut at or behind `position`.
  QUIRE_HOST_DEVICE int first_from(int position) const {
    const int border = longer * (length + 1);
    if (position <= border) return ceil_div(position, length + 1);
    return longer + ceil_div(position - border, length);
  }
};

// No more parts than key blocks: then no part is empty and cuts never coincide.
QUIRE_HOST_DEVICE inline WorkCuts cut_work(const DecodeSplit& split, int total) {
  if (total <= split.blocks) return {.total = total, .parts = total > 0 ? total : 1, .length = 1};
  return {.total = total,
          .parts = split.blocks,
          .length = total / split.blocks,
          .longer = total % split.blocks};
}

QUIRE_HOST_DEVICE inline int invariant_piece_blocks(int blocks) {
  const int even = ceil_div(blocks, kMaxPieces);
  return even > kMinPieceBlocks ? even : kMinPieceBlocks;
}

// The key block at which a cut `offset` into an item takes effect: 0 and `blocks` leave it whole.
QUIRE_HOST_DEVICE inline int cut_block(const DecodeSplit& split, int offset, int blocks) {
  const int block = offset - split.item_cost;
  if (split.is_invariant) {
    const int piece = invariant_piece_blocks(blocks);
    return block > 0 ? block / piece * piece : 0;
  }
  if (block < split.min_piece) return 0;
  return blocks - block < split.min_piece ? blocks : block;
}

// The pieces of an item that begins at `begin` on the line, not invariant: piece j is the work of
// thread block first + j.
struct SharedItem {
  int first = 0;
  int pieces = 1;
};

QUIRE_HOST_DEVICE inline SharedItem shared_item(const DecodeSplit& split, const WorkCuts& cuts,
                                                int begin, int blocks) {
  const int origin = begin + split.item_cost;
  const int first = cuts.first_from(origin + split.min_piece);
  const int end = cuts.first_from(origin + blocks - split.min_piece + 1);
  return {.first = first - 1, .pieces = end > first ? end - first + 1 : 1};
}

// Where a piece is kept until it is merged.
QUIRE_HOST_DEVICE inline std::int64_t piece_slot(int thread_block, bool begins_item) {
  return 2 * std::int64_t{thread_block} + (begins_item ? 1 : 0);
}
QUIRE_HOST_DEVICE inline std::int64_t invariant_slot(const DecodeBatch& batch,
                                                     const DecodeSplit& split, int sequence,
                                                     int kv_head, int tile, int piece) {
  const std::int64_t item =
      (std::int64_t{sequence} * batch.kv_heads + kv_head) * split.max_tiles + tile;
  return item * kMaxPieces + piece;
}

}  // namespace quire::cuda
