// SPDX-License-Identifier: Apache-2.0
// A run of bytes into shared memory by the copy engine. Called by one thread.
#pragma once

#include "cuda/common/pipeline/tma.cuh"

namespace quire::cuda {

struct BytesLoad {
  const std::byte* from;
  void* shared;
  int bytes;
  FullBarrier* full;
  L2Hint hint;
};

// Addresses and size are multiples of 16.
__device__ inline void load_bytes(const BytesLoad& load) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1], %2, [%3], %4;" ::"r"(cute::cast_smem_ptr_to_uint(load.shared)),
      "l"(load.from), "r"(load.bytes), "r"(cute::cast_smem_ptr_to_uint(load.full)),
      "l"(static_cast<std::uint64_t>(load.hint))
      : "memory");
}

}  // namespace quire::cuda
