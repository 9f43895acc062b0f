// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/prefill_attention/products.cuh"

namespace quire::cuda {

// sums = weights · V over one block. The tensor cores keep 13 bits against the sum they add to:
// sums of more keys are made in fp32 (measured, 4096 positive products: 7.4 % low in one go, 0.05 %
// in sums of 128).
template <PrefillConfig kConfig>
__device__ inline void issue_fp8_values(const std::uint32_t (&weights)[kConfig.block_keys / 8],
                                        const std::byte* values,
                                        float (&sums)[kConfig.value_dim / 2]) {
  static_assert(kConfig.block_keys == kRowBytes);
  using Op = RowWgmma<DType::fp8_e4m3, kConfig.value_dim>;
  const std::uint64_t b = tile_descriptor(values);
#pragma unroll
  for (int step = 0; step < kRowBytes / kStepBytes; ++step) {
    detail::issue<Op>(
        &weights[4 * step], b + step * (kStepBytes >> 4), sums,
        step == 0 ? cute::SM90::GMMA::ScaleOut::Zero : cute::SM90::GMMA::ScaleOut::One,
        std::make_index_sequence<kConfig.value_dim / 2>{});
  }
}

// The same by itself, as a group of products.
template <PrefillConfig kConfig>
__device__ inline void start_fp8_sum(std::uint32_t (&weights)[kConfig.block_keys / 8],
                                     const std::byte* values,
                                     float (&sums)[kConfig.value_dim / 2]) {
  pin(sums);
  pin(weights);
  cute::warpgroup_arrive();
  issue_fp8_values<kConfig>(weights, values, sums);
  cute::warpgroup_commit_batch();
}

}  // namespace quire::cuda
