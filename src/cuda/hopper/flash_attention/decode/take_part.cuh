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

inline constexpr std::uint64_t kTicketCount = 0xfffff;

__device__ inline bool is_counted(const DecodePieces& pieces, std::uint64_t word) {
  return (word & ~kTicketCount) == (pieces.mark & ~kTicketCount);
}

// By one thread, early: then hardly anyone finds the word without the mark.
__device__ inline void open_tickets(const DecodePieces& pieces) {
  const unsigned long long found = __ldcg(pieces.tickets);
  if (is_counted(pieces, found)) return;
  atomicCAS(pieces.tickets, found, pieces.mark & ~kTicketCount);
}

// By one thread; cuts.parts or more: there are none left. Added to, not exchanged: thread blocks ask all
// at once, and exchanges that fail took 30 µs each.
__device__ inline int take_part(const DecodePieces& pieces, const WorkCuts& cuts) {
  unsigned long long taken = atomicAdd(pieces.tickets, 1ULL);
  while (!is_counted(pieces, taken)) {
    open_tickets(pieces);
    taken = atomicAdd(pieces.tickets, 1ULL);
  }
  const int part = cuts.long_parts + static_cast<int>(taken & kTicketCount);
  if (part == cuts.parts + static_cast<int>(gridDim.x) - 1) __stcg(pieces.tickets, 0ULL);
  return part;
}

}  // namespace quire::cuda::hopper
