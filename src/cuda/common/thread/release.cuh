// SPDX-License-Identifier: Apache-2.0
// Counters in global memory by which thread blocks tell each other that something is written.
#pragma once

#include <cstdint>

namespace quire::cuda {

// What the thread has written, or seen written, before is there for who acquires the sum.
__device__ inline void add_released(std::uint32_t* counter, std::uint32_t word) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(counter), "r"(word) : "memory");
}
__device__ inline std::uint32_t load_acquired(const std::uint32_t* counter) {
  std::uint32_t word;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(counter) : "memory");
  return word;
}

}  // namespace quire::cuda
