// SPDX-License-Identifier: Apache-2.0
// Dot products of 64 keys with the heads of a block of tokens, in fp8. The tensor cores keep 13 bits
// below the greatest product or sum of an instruction and cut off the rest; over 128 columns of mixed
// signs that is 1e-5 of Σ |q · k| of one head (measured), less in the sum over heads.
#pragma once

#include <cstddef>

#include "cuda/hopper/mla_indexer/config.h"
#include "cuda/hopper/tile/wgmma.cuh"

namespace quire::cuda::hopper {

// A row is one swizzled line of `dims` bytes; atoms are 8 rows.
template <int kDims> __device__ inline std::uint64_t row_tile_descriptor(const void* tile) {
  static_assert(kDims == 64 || kDims == 128);
  constexpr std::uint64_t kSwizzle = kDims == 128 ? 1 : 2;
  const std::uint64_t address = __cvta_generic_to_shared(tile);
  return (address >> 4) | (std::uint64_t{1} << 16) | (std::uint64_t{8 * kDims >> 4} << 32) |
         (kSwizzle << 62);
}

template <IndexConfig kConfig> using IndexWgmma = Wgmma<DType::fp8_e4m3, kConfig.product_columns()>;

// With the columns of one product.
template <IndexConfig kConfig>
__device__ inline void multiply_tile(const void* tile, const std::byte* queries, int product,
                                     float (&sums)[kConfig.product_columns() / 2]) {
  const std::byte* columns = queries + product * kConfig.product_columns() * kConfig.dims;
  pin(sums);
  cute::warpgroup_arrive();
  multiply_rows<IndexWgmma<kConfig>, kConfig.dims / kStepBytes>(
      row_tile_descriptor<kConfig.dims>(tile), row_tile_descriptor<kConfig.dims>(columns), sums,
      true);
  cute::warpgroup_commit_batch();
  cute::warpgroup_wait<0>();
  pin(sums);
}

}  // namespace quire::cuda::hopper
