// SPDX-License-Identifier: Apache-2.0
// Dot products of 64 keys with the heads of a block of tokens, in fp8. The tensor cores keep 13 bits
// below the greatest product or sum of an instruction and cut off the rest; over 128 columns of mixed
// signs that is 1e-5 of Σ |q · k| of one head (measured), less in the sum over heads.
#pragma once

#include <cstddef>

#include "cuda/common/mma/wgmma.cuh"
#include "cuda/sm90/mla_indexer/config.h"

namespace quire::cuda::sm90::mla_indexer {

// A row is one swizzled line of `dims` bytes; atoms are 8 rows.
template <int kDims> __device__ inline std::uint64_t row_tile_descriptor(const void* tile) {
  static_assert(kDims == 64 || kDims == 128);
  constexpr std::uint64_t kSwizzle = kDims == 128 ? 1 : 2;
  const std::uint64_t address = __cvta_generic_to_shared(tile);
  return (address >> 4) | (std::uint64_t{1} << 16) | (std::uint64_t{8 * kDims >> 4} << 32) |
         (kSwizzle << 62);
}

// `step` instructions further along a row: an address, which the lower half of the word has room for.
__device__ inline std::uint64_t step_along(std::uint64_t descriptor, int step) {
  const auto low = static_cast<std::uint32_t>(descriptor) + step * (kStepBytes >> 4);
  return descriptor >> 32 << 32 | low;
}

template <IndexConfig kConfig>
__device__ inline void start_products(const void* tile, const std::byte* queries,
                                      float (&sums)[kConfig.columns() / 2]) {
  const std::uint64_t keys = row_tile_descriptor<kConfig.dims>(tile);
  const std::uint64_t columns = row_tile_descriptor<kConfig.dims>(queries);
  pin(sums);
  cute::warpgroup_arrive();
#pragma unroll
  for (int step = 0; step < kConfig.dims / kStepBytes; ++step) {
    detail::issue<Wgmma<DType::fp8_e4m3, kConfig.columns()>>(
        step_along(keys, step), step_along(columns, step), sums,
        step == 0 ? gmma::ScaleOut::Zero : gmma::ScaleOut::One,
        std::make_index_sequence<kConfig.columns() / 2>{});
  }
  cute::warpgroup_commit_batch();
}

template <int kSums> __device__ inline void wait_for_products(float (&sums)[kSums]) {
  cute::warpgroup_wait<0>();
  pin(sums);
}

}  // namespace quire::cuda::sm90::mla_indexer
