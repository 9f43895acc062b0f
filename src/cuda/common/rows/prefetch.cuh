// SPDX-License-Identifier: Apache-2.0
// What is needed after something else, on its way to L2 beside it, and the translation of its address: at the start of a
// kernel nothing is there yet, and reads that wait for each other take a memory's latency each.
#pragma once

namespace quire::cuda {

__device__ inline void prefetch_line(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

}  // namespace quire::cuda
