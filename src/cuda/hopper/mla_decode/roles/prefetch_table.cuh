// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/hopper/flash_attention/decode/config.h"
#include "cuda/hopper/mla_decode/params.h"

namespace quire::cuda::hopper {

// The page table into L2, all of it or what one line for each thread brings, while lengths are on
// their way: which of it a block needs follows from them.
__device__ inline void prefetch_table(const LatentPages& pages, int batch, int thread) {
  constexpr int kLine = 32;  // entries
  const std::int64_t at = (std::int64_t{blockIdx.x} * DecodeConfig::kLoadThreads + thread) * kLine;
  if (at >= (batch - 1) * pages.table_stride + pages.max_pages) return;
  asm volatile("prefetch.global.L2 [%0];" ::"l"(pages.table + at));
}

}  // namespace quire::cuda::hopper
