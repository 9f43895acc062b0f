// SPDX-License-Identifier: Apache-2.0
// An item's queries, this block's columns, into shared memory by the warps that multiply: the loading
// warps stay ahead with the keys.
#pragma once

#include <cute/arch/copy_sm80.hpp>

#include "cuda/hopper/latent_attention/params.h"
#include "cuda/hopper/latent_attention/shared.cuh"

namespace quire::cuda::hopper {

// 16 bytes of a query; zeros, where `is_there` is false. The compiler must not see what the address is
// made of: as a sum of a register, a uniform register and a constant, ptxas 13.0 encodes this copy with
// a descriptor register that does not exist, and the GPU stops at an illegal instruction.
__device__ inline void copy_query(void* target, const std::byte* source, bool is_there) {
  auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(target));
  asm volatile("" : "+r"(address));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(source),
               "r"(is_there ? 16 : 0)
               : "memory");
}

// One row of an item's queries into L2, ahead of those who load it.
__device__ inline void prefetch_query(const LatentParams& params, const LatentItem& item, int row) {
  constexpr int kBytes = (LatentConfig::kLatent + LatentConfig::kRope) * 2;
  if (row >= item.rows) return;
  const std::byte* source =
      params.queries.data +
      (item.first_token + row / params.heads) * params.queries.token_stride_bytes +
      row % params.heads * params.queries.head_stride_bytes;
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(source), "n"(kBytes) : "memory");
}

// Rows [first_row, first_row + kRows) by one warp; rows beyond the item's are zeros.
template <LatentConfig kConfig, int kRows>
__device__ inline void load_query_rows(const LatentParams& params, LatentShared<kConfig>& shared,
                                       const LatentItem& item, int rank, int first_row) {
  static_assert(kRows <= 32 && kRows % 8 == 0);
  const int lane = static_cast<int>(threadIdx.x % 32);
  // Lane l knows where row first_row + l is.
  const int own = first_row + lane % kRows;
  const std::int64_t token = item.first_token + own / params.heads;
  const int head = own % params.heads;
  const std::int64_t offset =
      token * params.queries.token_stride_bytes + head * params.queries.head_stride_bytes;
#pragma unroll 4
  for (int i = 0; i < kRows; ++i) {
    const int row = first_row + i;
    const std::byte* source = params.queries.data + __shfl_sync(0xffffffff, offset, i) +
                              rank * LatentConfig::kColumns * 2 + lane * 16;
    copy_query(&shared.q[lane / 8][slab_offset(row, lane)], source, row < item.rows);
  }
#pragma unroll
  for (int i = 0; i < kRows; i += 8) {
    const int row = first_row + i + lane / 4;
    const std::byte* source = params.queries.data + __shfl_sync(0xffffffff, offset, i + lane / 4) +
                              LatentConfig::kLatent * 2 + rank * LatentConfig::kTailBytes +
                              lane % 4 * 16;
    copy_query(&shared.q_tail[tail_offset(row, lane % 4)], source, row < item.rows);
  }
}

// By all warps that multiply. `warp`: of the eight.
template <LatentConfig kConfig>
__device__ inline void load_queries(const LatentParams& params, LatentShared<kConfig>& shared,
                                    const LatentItem& item, int rank, int warp) {
  constexpr int kWarpRows = kConfig.rows() / LatentConfig::kWarps;
  load_query_rows<kConfig, kWarpRows>(params, shared, item, rank, warp * kWarpRows);
  cute::cp_async_wait<0>();
  cutlass::arch::fence_view_async_shared();
}

}  // namespace quire::cuda::hopper
