// SPDX-License-Identifier: Apache-2.0
// Who begins an item says how many clusters share it: whoever merges then has nothing to look up.
#pragma once

#include "cuda/common/split_kv/find_work.cuh"
#include "cuda/sm90/mla_decode/cut_parts.h"
#include "cuda/sm90/mla_decode/params.h"

namespace quire::cuda::sm90::mla_decode {

// By one warp of a cluster, for each of its pieces. Invariant pieces follow from the lengths alone. The
// line is added up again: nobody waits for this, and nothing has to be kept until then.
__device__ inline void publish_split_count(const MlaDecodeParams& params, int cluster,
                                           const SequenceWork& work, const WorkPiece& piece,
                                           int sequence) {
  static_assert(DecodeSplit{}.item_cost == 0 && DecodeSplit{}.min_piece == 1);
  if (params.split.is_invariant || piece.begin != 0) return;
  int pieces = 1;
  if (piece.slot >= 0) {
    // Where the item ends on the line: clusters up to the first cut from there on have pieces of it.
    const WorkCuts cuts = cut_parts(params.split, cut_batch(params).total);
    pieces = cuts.first_from(cuts.at(cluster + 1) + work.blocks - piece.end) - cluster;
  }
  if (threadIdx.x % 32 != 0) return;
  params.attend.pieces.notes[sequence * params.split.max_tiles + piece.tile] = {
      .pieces = pieces, .first_cluster = cluster};
}

}  // namespace quire::cuda::sm90::mla_decode
