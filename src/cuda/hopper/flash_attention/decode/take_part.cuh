// SPDX-License-Identifier: Apache-2.0
// Short parts of the work (work_line.h) go to whoever asks first. What is computed, and in which order
// it is added, does not depend on who that is.
//
// Tickets are counted in a word of the workspace that nobody cleared: its high bits are the launch's mark,
// so whatever else stands there counts as none taken. Every thread block asks until it is refused; the
// last to be refused clears the word for a replay of the same launch.
#pragma once

#include "cuda/hopper/flash_attention/decode/work_line.h"

namespace quire::cuda::hopper {

// By one thread; cuts.parts or more: there are none left.
__device__ inline int take_part(const DecodePieces& pieces, const WorkCuts& cuts, int thread_blocks) {
  constexpr std::uint64_t kCount = 0xfffff;
  const std::uint64_t mark = pieces.mark & ~kCount;
  auto* word = reinterpret_cast<unsigned long long*>(pieces.tickets);
  unsigned long long expected = __ldcg(word);
  unsigned long long taken = 0;
  while (true) {
    taken = (expected & ~kCount) == mark ? expected : mark;
    const unsigned long long found = atomicCAS(word, expected, taken + 1);
    if (found == expected) break;
    expected = found;
  }
  const int ticket = static_cast<int>(taken & kCount);
  const int part = cuts.long_parts + ticket;
  if (part == cuts.parts + thread_blocks - 1) __stcg(word, 0ULL);
  return part;
}

}  // namespace quire::cuda::hopper
