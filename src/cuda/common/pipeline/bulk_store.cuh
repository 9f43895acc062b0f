// SPDX-License-Identifier: Apache-2.0
// Runs of bytes out of shared memory by the copy engine. Called by one thread.
#pragma once

#include <cute/arch/util.hpp>

#include <cstddef>

namespace quire::cuda {

// Addresses and size are multiples of 16. Threads that wrote the shared memory did a fence_view_async_shared() and
// met this one at a barrier.
__device__ inline void store_bytes(std::byte* to, const void* shared, int bytes) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
      "cp.async.bulk.commit_group;" ::"l"(to),
      "r"(cute::cast_smem_ptr_to_uint(shared)), "r"(bytes)
      : "memory");
}
// In place of a store, so that threads of a warp count alike.
__device__ inline void commit_no_bytes() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until the shared memory of this thread's stores, but for the last kLast, has been read.
template <int kLast> __device__ inline void wait_stored_bytes_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kLast) : "memory");
}

}  // namespace quire::cuda
