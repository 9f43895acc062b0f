// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/mla_decode/latent/products.cuh"
#include "cuda/sm90/mla_decode/swap_ab/operands.cuh"

namespace quire::cuda::sm90::mla_decode {

// sums (+)= 64 × 64 of registers · a swizzle column of 64 columns of q, or of as many keys' weights. kRows: of q.
template <DType kElement, int kRows>
__device__ inline void start_product(std::uint32_t (&words)[kOperandWords],
                                     std::uint32_t swizzle_column, float (&sums)[kRows / 2],
                                     bool starts_sum) {
  pin(words);
  cute::warpgroup_arrive();
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    detail::issue<RowWgmma<kElement, kRows>>(
        &words[4 * step], descriptor(swizzle_column + (step * kStepBytes >> 4), kRowsHigh), sums,
        starts_sum && step == 0 ? cute::SM90::GMMA::ScaleOut::Zero
                                : cute::SM90::GMMA::ScaleOut::One,
        std::make_index_sequence<kRows / 2>{});
  }
  cute::warpgroup_commit_batch();
}

}  // namespace quire::cuda::sm90::mla_decode
