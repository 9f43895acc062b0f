// SPDX-License-Identifier: Apache-2.0
// Descriptions of a cluster's items, for the warps that multiply.
#pragma once

#include "cuda/hopper/flash_attention/decode/find_work.cuh"
#include "cuda/hopper/latent_attention/shared.cuh"
#include "cuda/hopper/mla_decode/params.h"
#include "cuda/hopper/mla_decode/roles/describe_item.cuh"

namespace quire::cuda::hopper {

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
