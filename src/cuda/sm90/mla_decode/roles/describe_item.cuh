// SPDX-License-Identifier: Apache-2.0
// A piece of the work as the warps that multiply see it.
#pragma once

#include "cuda/common/split_kv/work_walk.h"
#include "cuda/sm90/mla_decode/latent/shared.cuh"

namespace quire::cuda::sm90::mla_decode {

__device__ inline LatentItem describe_item(const DecodeBatch& batch, const SequenceWork& work,
                                           const WorkPiece& piece) {
  const int skipped = piece.tile * batch.tile_tokens;
  return {.tiles = piece.end - piece.begin,
          .first_key = (work.first_block + piece.begin) * kBlockKeys,
          .num_keys = work.num_keys(),
          .position = work.cached + skipped,
          .first_token = work.first_token + skipped,
          .rows = min(work.tokens - skipped, batch.tile_tokens) * batch.group,
          .slot = piece.slot};
}

}  // namespace quire::cuda::sm90::mla_decode
