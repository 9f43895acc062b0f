// SPDX-License-Identifier: Apache-2.0
// Chosen positions in ascending order: a bit for each position of a window, then a sum over them.
#pragma once

#include "cuda/hopper/mla_indexer/select.cuh"

namespace quire::cuda::hopper {

template <int kNumWords> struct PositionWindow {
  static constexpr int kWords = kNumWords;
  static constexpr int kPositions = 32 * kNumWords;

  std::uint32_t bits[kNumWords];
};

// Where a row's positions go.
struct RowOutput {
  std::int32_t* row;
  unsigned written = 0;
};

// Positions [first, end) of the codes from `bound` on, behind those written before. Ends without a
// sync.
template <typename Threads, typename ForEach, typename Window>
__device__ inline void write_positions(const Threads& team, const ForEach& for_each,
                                       std::uint64_t bound, unsigned first, unsigned end,
                                       RowOutput& output, Window& window, unsigned* warp_sums) {
  constexpr int kWordsEach = Window::kWords / Threads::kThreads;
  static_assert(Window::kWords % Threads::kThreads == 0);
  for (unsigned origin = first; origin < end; origin += Window::kPositions) {
    team.sync();  // of the window before
    for (int i = team.thread; i < Window::kWords; i += Threads::kThreads) window.bits[i] = 0;
    team.sync();
    for_each([&](std::uint64_t code) {
      const unsigned place = position_of(code) - origin;
      if (code >= bound && place < Window::kPositions) {
        atomicOr(&window.bits[place / 32], 1u << (place % 32));
      }
    });
    team.sync();
    std::uint32_t words[kWordsEach];
    unsigned count = 0;
#pragma unroll
    for (int i = 0; i < kWordsEach; ++i) {
      words[i] = window.bits[team.thread * kWordsEach + i];
      count += __popc(words[i]);
    }
    const TeamSum sum = sum_before(team, count, warp_sums);
    std::int32_t* slot = output.row + output.written + sum.before;
#pragma unroll
    for (int i = 0; i < kWordsEach; ++i) {
      const unsigned base = origin + 32u * static_cast<unsigned>(team.thread * kWordsEach + i);
      for (std::uint32_t rest = words[i]; rest != 0; rest &= rest - 1) {
        *slot++ = static_cast<std::int32_t>(base + __ffs(static_cast<int>(rest)) - 1);
      }
    }
    output.written += sum.total;
  }
}

template <typename Threads>
__device__ inline void fill_rest(const Threads& team, const RowOutput& output, int top_k) {
  for (int slot = static_cast<int>(output.written) + team.thread; slot < top_k;
       slot += Threads::kThreads) {
    output.row[slot] = -1;
  }
}

}  // namespace quire::cuda::hopper
