// SPDX-License-Identifier: Apache-2.0
// The end of a block's first item, gone through once while the block waits for its first keys: code that runs for
// the first time is mostly waited for, and at the end of the work everybody would wait.
#pragma once

#include <cstdint>

namespace quire::cuda::hopper {

// `value`, of which the compiler knows nothing: a rehearsal is of use only in the code that it rehearses.
__device__ inline bool opaque(bool value) {
  auto word = static_cast<std::uint32_t>(value);
  asm volatile("" : "+r"(word));
  return word != 0;
}

}  // namespace quire::cuda::hopper
