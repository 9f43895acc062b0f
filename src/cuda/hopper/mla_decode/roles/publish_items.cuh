// SPDX-License-Identifier: Apache-2.0
// Descriptions of a cluster's items, for the warps that multiply.
#pragma once

#include "cuda/hopper/flash_attention/decode/find_work.cuh"
#include "cuda/hopper/latent_attention/shared.cuh"
#include "cuda/hopper/mla_decode/params.h"

namespace quire::cuda::hopper {

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

template <LatentConfig kConfig> class PublishItems {
 public:
  // `publishes`: the one thread that does.
  __device__ PublishItems(LatentShared<kConfig>& shared, bool publishes)
      : shared_(shared), publishes_(publishes) {}

  // By whole warps; an item without tiles is the last.
  __device__ void publish(const LatentItem& item) {
    if (publishes_) {
      shared_.item_ring.wait_empty(at_);
      shared_.items[at_.stage] = item;
      shared_.item_ring.full[at_.stage].arrive();
    }
    __syncwarp();
    at_.advance();
  }

 private:
  LatentShared<kConfig>& shared_;
  const bool publishes_;
  RingPosition<LatentConfig::kItems> at_;
};

}  // namespace quire::cuda::hopper
