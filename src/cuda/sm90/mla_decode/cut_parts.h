// SPDX-License-Identifier: Apache-2.0
// Where the work of mla_decode is cut (common/split_kv/split_schedule.h).
#pragma once

#include "cuda/common/split_kv/split_schedule.h"

namespace quire::cuda::sm90::mla_decode {

// A cluster has two tiles or more, if there are so many: a second tile takes it less time than another piece takes to
// be stored and merged (one sequence of 8 192 keys: 18.1 µs with 64 pieces of 16 heads, 18.8 with 128).
QUIRE_HOST_DEVICE inline WorkCuts cut_parts(const DecodeSplit& split, int tiles) {
  const int pairs = tiles / 2;
  DecodeSplit fewer = split;
  if (pairs < split.blocks) fewer.blocks = pairs > 1 ? pairs : 1;
  return cut_work(fewer, tiles);
}

// What the walk over a part (common/split_kv/split_schedule.h) gives first, from the cuts alone: keys and queries are asked for before the walk
// begins. Code that runs once is mostly waited for, and that of a walk jumps. False: there is nothing, or pieces are
// invariant and begin elsewhere than at cuts.
QUIRE_HOST_DEVICE inline bool first_piece(const DecodeSplit& split, const WorkCuts& cuts,
                                          const LinePlace& place, int cluster, WorkPiece& piece) {
  static_assert(DecodeSplit{}.item_cost == 0 && DecodeSplit{}.min_piece == 1);
  if (split.is_invariant || cluster >= cuts.parts || cuts.total == 0) return false;
  const int blocks = place.work.blocks;
  const int position = cuts.at(cluster);
  const int item = (position - place.begin) / blocks;
  const int begin = position - place.begin - item * blocks;
  const int cut = begin + cuts.at(cluster + 1) - position;
  const int end = cut < blocks ? cut : blocks;
  const bool is_whole = begin == 0 && end == blocks;
  piece = {.begin = begin,
           .end = end,
           .kv_head = 0,
           .tile = item,
           .slot = is_whole ? -1 : piece_slot(cluster, begin == 0)};
  return true;
}

}  // namespace quire::cuda::sm90::mla_decode
