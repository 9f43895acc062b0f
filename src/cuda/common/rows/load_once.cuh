// SPDX-License-Identifier: Apache-2.0
// Loads with cache hints.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::cuda {

// 16 bytes that are only copied: no line of L1, and in L2 a line that keeps the rank it has. A copy of
// 64 MiB after 256 MiB were written takes 36.7 µs so, 38.4 by plain loads, and 39.5 by __ldcs, whose
// lines are evicted first. Kernels that compute with what they load do not gain: rms_norm loses 2 %.

__device__ inline uint4 load_once(const std::byte* source) {
  std::uint64_t unchanged;
  asm("createpolicy.fractional.L2::evict_unchanged.b64 %0, 1.0;" : "=l"(unchanged));
  uint4 vector;
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(vector.x), "=r"(vector.y), "=r"(vector.z), "=r"(vector.w)
               : "l"(source), "l"(unchanged));
  return vector;
}

// What is needed after something else, on its way to L2 beside it, and the translation of its address: at the start of a
// kernel nothing is there yet, and reads that wait for each other take a memory's latency each.

__device__ inline void prefetch_line(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

}  // namespace quire::cuda
