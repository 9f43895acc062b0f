// SPDX-License-Identifier: Apache-2.0
// A block's 64 rows of an item's queries into shared memory, by the eight warps of the scores.
#pragma once

#include <cute/arch/copy_sm80.hpp>

#include "cuda/hopper/latent_attention/load_queries.cuh"
#include "cuda/hopper/mla_decode/by_role/shared.cuh"

namespace quire::cuda::hopper {

// `first_row`: of the item, the block's; rows beyond the item's are zeros. `warp`: of the eight.
__device__ inline void load_rows_of_q(const LatentParams& params, ByRoleShared& shared,
                                      const LatentItem& item, int first_row, int warp) {
  constexpr int kWarpRows = 8;
  constexpr int kRowChunks = ByRole::kSlabs * 8;  // of 16 bytes
  const auto lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll 1
  for (int i = 0; i < kWarpRows; ++i) {
    const int place = warp * kWarpRows + i;
    const int row = first_row + place;
    const std::int64_t token = item.first_token + row / params.heads;
    const std::byte* source = params.queries.data + token * params.queries.token_stride_bytes +
                              row % params.heads * params.queries.head_stride_bytes;
#pragma unroll
    for (int first = 0; first < kRowChunks; first += 32) {
      const int chunk = first + lane;
      if (chunk >= kRowChunks) break;
      copy_query(&shared.q[chunk / 8][slab_offset(place, chunk % 8)], source + chunk * 16,
                 row < item.rows);
    }
  }
  cute::cp_async_wait<0>();
  cutlass::arch::fence_view_async_shared();
}

}  // namespace quire::cuda::hopper
