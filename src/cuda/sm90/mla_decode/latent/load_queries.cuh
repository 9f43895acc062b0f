// SPDX-License-Identifier: Apache-2.0
// Queries of an item on their way into shared memory.
#pragma once

#include "cuda/sm90/mla_decode/latent/params.h"
#include "cuda/sm90/mla_decode/latent/shared.cuh"

namespace quire::cuda::sm90::mla_decode {

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

}  // namespace quire::cuda::sm90::mla_decode
