// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace quire::cuda {

// The same value, of which the compiler knows nothing: what is computed from it inside a loop stays
// there. (Descriptors and addresses that a loop never changes are otherwise computed before it, all of
// them, and spilled.)
__device__ inline int opaque(int value) {
  asm volatile("" : "+r"(value));
  return value;
}
__device__ inline std::uint64_t opaque(std::uint64_t value) {
  asm volatile("" : "+l"(value));
  return value;
}

}  // namespace quire::cuda
