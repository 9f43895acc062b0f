// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace quire::cuda::sm90::mla_decode {

// All `threads` that meet at named barrier `id` learn whether `is_so` holds for every one of them.
__device__ inline bool barrier_all(bool is_so, int threads, std::uint32_t id) {
  std::uint32_t all;
  asm volatile(
      "{\n"
      ".reg .pred own, all;\n"
      "setp.ne.u32 own, %1, 0;\n"
      "barrier.cta.red.and.pred all, %2, %3, own;\n"
      "selp.u32 %0, 1, 0, all;\n"
      "}"
      : "=r"(all)
      : "r"(static_cast<std::uint32_t>(is_so)), "r"(id), "r"(threads)
      : "memory");
  return all != 0;
}

}  // namespace quire::cuda::sm90::mla_decode
