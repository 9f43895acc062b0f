// SPDX-License-Identifier: Apache-2.0
// The halves of the scores, from warp to warp of the two blocks: every thread has the same rows and
// keys as the thread of the same number in the other block.
#pragma once

#include <cute/arch/cluster_sm90.hpp>

#include "cuda/hopper/latent_attention/products.cuh"
#include "cuda/hopper/tile/block_address.cuh"

namespace quire::cuda::hopper {

// Into another block's shared memory; its barrier counts the bytes.
__device__ inline void store_async(std::uint32_t target, const float* numbers,
                                   std::uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(target),
      "f"(numbers[0]), "f"(numbers[1]), "f"(numbers[2]), "f"(numbers[3]), "r"(barrier)
      : "memory");
}

template <LatentConfig kConfig> class PartialScores {
 public:
  using Shared = LatentShared<kConfig>;

  // `warp`: of the eight that multiply.
  __device__ PartialScores(Shared& shared, int warp)
      : shared_(shared),
        warp_(warp),
        other_(cute::block_rank_in_cluster() ^ 1),
        target_(address_in_block(&shared.partials[warp][0][lane()], other_)),
        target_full_(address_in_block(&shared.partial_full[warp], other_)) {}

  // What the other block sends next may be written: everything before has been read.
  __device__ void allow() const {
    __syncwarp();
    if (lane() == 0) shared_.partial_empty[warp_].arrive(other_);
  }

  __device__ void send(const float (&scores)[kTileScores]) {
    shared_.partial_empty[warp_].wait(send_phase_);
    send_phase_ ^= 1;
#pragma unroll
    for (int i = 0; i < Shared::kPartialVectors; ++i) {
      store_async(target_ + i * 32 * sizeof(float4), &scores[4 * i], target_full_);
    }
  }

  __device__ void add_received(float (&scores)[kTileScores]) {
    FullBarrier& full = shared_.partial_full[warp_];
    if (lane() == 0) full.arrive_and_expect_tx(sizeof(shared_.partials[0]));
    full.wait(receive_phase_);
    receive_phase_ ^= 1;
#pragma unroll
    for (int i = 0; i < Shared::kPartialVectors; ++i) {
      const float4 part = shared_.partials[warp_][i][lane()];
      scores[4 * i] += part.x;
      scores[4 * i + 1] += part.y;
      scores[4 * i + 2] += part.z;
      scores[4 * i + 3] += part.w;
    }
  }

 private:
  __device__ static int lane() {
    return static_cast<int>(threadIdx.x % 32);
  }

  Shared& shared_;
  const int warp_;
  const std::uint32_t other_;
  const std::uint32_t target_;       // this thread's place in the other block
  const std::uint32_t target_full_;  // and its warp's barrier there
  std::uint32_t send_phase_ = 0;
  std::uint32_t receive_phase_ = 0;
};

}  // namespace quire::cuda::hopper
