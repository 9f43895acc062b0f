// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace quire::cuda::hopper {

// A kernel's parameters into the multiprocessor's constant cache: at its start, all warps, a line each.
// Otherwise every line is a wait for memory of its own where a field of it is first wanted, one after
// another. `params`: the kernel's own, a __grid_constant__.
template <typename Params> __device__ inline void touch_params(const Params& params) {
  constexpr unsigned kLineWords = 16;
  constexpr unsigned kWords = sizeof(Params) / sizeof(std::uint32_t);
  const auto* words = reinterpret_cast<const std::uint32_t*>(&params);
  for (unsigned word = threadIdx.x / 32 * kLineWords; word < kWords;
       word += blockDim.x / 32 * kLineWords) {
    // A use that the assembler has to keep, and that does nothing.
    asm volatile("{.reg .pred p; setp.eq.u32 p, %0, 0x9e3779b9; @p nanosleep.u32 0;}" ::"r"(
        words[word]));
  }
}

}  // namespace quire::cuda::hopper
