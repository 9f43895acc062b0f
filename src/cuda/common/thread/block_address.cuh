// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace quire::cuda {

// Of a place in shared memory, as instructions take it.
__device__ inline std::uint32_t shared_address(const void* place) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(place));
}

// The same place in another thread block of the cluster.
__device__ inline std::uint32_t address_in_block(std::uint32_t address, std::uint32_t rank) {
  std::uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
__device__ inline std::uint32_t address_in_block(const void* place, std::uint32_t rank) {
  return address_in_block(shared_address(place), rank);
}

}  // namespace quire::cuda
