// SPDX-License-Identifier: Apache-2.0
// 16 bytes from global to shared memory by any thread, asynchronously. CuTe's copy has no cache hint.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::cuda::sm90::flash_attention {

// What becomes of the lines in L2: as the copy engine encodes it.
enum class L2Policy : std::uint64_t {
  normal = 0x1000000000000000,
  evict_first = 0x12f0000000000000
};

__device__ inline void copy_async(void* target, const std::byte* source, L2Policy policy) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(target));
  asm volatile(
      "cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2;" ::"r"(address),
      "l"(source), "l"(static_cast<std::uint64_t>(policy))
      : "memory");
}
// `is_there` false: zeros, and `source` is not read.
__device__ inline void copy_async(void* target, const std::byte* source, bool is_there,
                                  L2Policy policy) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(target));
  const int bytes = is_there ? 16 : 0;
  asm volatile(
      "cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(address),
      "l"(source), "r"(bytes), "l"(static_cast<std::uint64_t>(policy))
      : "memory");
}

}  // namespace quire::cuda::sm90::flash_attention
