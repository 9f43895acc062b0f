// SPDX-License-Identifier: Apache-2.0
// Copies of a few bytes from global to shared memory, in groups that their thread waits for.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::cuda::sm90::sparse_mla {

// 16 bytes; `is_there` false: zeros, and `source` is not read. No wish for more of the line than asked
// for: rows of 656 bytes begin anywhere in one.
__device__ inline void copy_piece(void* target, const std::byte* source, bool is_there) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(target));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(source),
               "r"(is_there ? 16 : 0)
               : "memory");
}
// 4 bytes.
__device__ inline void copy_word(void* target, const void* source, bool is_there) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(target));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(source),
               "r"(is_there ? 4 : 0)
               : "memory");
}
// What this thread has sent for since the last call is a group.
__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until all but the newest kLeft groups are there.
template <int kLeft> __device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

}  // namespace quire::cuda::sm90::sparse_mla
