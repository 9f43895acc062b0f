// SPDX-License-Identifier: Apache-2.0
// 16 bytes from global to shared memory by any thread, asynchronously. CuTe's copy has no cache hint;
// without one, streamed keys push dirty lines out of L2, whose writing back they then wait for
// (3 µs of 30 after a kernel that wrote much).
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::cuda::hopper {

enum class Reuse : std::uint8_t { none, soon };

// `is_there` false: zeros, and `source` is not read.
template <Reuse kReuse>
__device__ inline void copy_async(void* target, const std::byte* source, bool is_there) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(target));
  const int bytes = is_there ? 16 : 0;
  if constexpr (kReuse == Reuse::none) {
    constexpr std::uint64_t kEvictFirst = 0x12f0000000000000;
    asm volatile(
        "cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(address),
        "l"(source), "r"(bytes), "l"(kEvictFirst)
        : "memory");
  } else {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(address),
                 "l"(source), "r"(bytes)
                 : "memory");
  }
}

}  // namespace quire::cuda::hopper
