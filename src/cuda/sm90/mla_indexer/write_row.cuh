// SPDX-License-Identifier: Apache-2.0
// Chosen positions in ascending order: a bit for each position of a window, and for each word of bits how
// many stand before it; then every position knows its place.
#pragma once

#include "cuda/sm90/mla_indexer/select.cuh"

namespace quire::cuda::sm90::mla_indexer {

template <int kNumWords> struct PositionWindow {
  static constexpr int kWords = kNumWords;
  static constexpr int kPositions = 32 * kNumWords;

  static constexpr int kPlaces = kNumWords + kNumWords / 32;

  // Word i stands at spread(i).
  std::uint32_t bits[kPlaces];
  std::uint16_t before[kPlaces];  // bits before it
};

// Where a row's positions go.
struct RowOutput {
  std::int32_t* row;
  unsigned written = 0;
};

// To device memory. The compiler may read shared memory before it, as it could not before a plain store
// that might be to the same place.
__device__ inline void store(std::int32_t* slot, std::uint32_t position) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(slot), "r"(position));
}

// Positions [first, end) of the codes from `bound` on, of which a window has at most 65535, behind those
// written before. Ends without a sync.
template <typename Threads, typename ForEach, typename Window>
__device__ inline void write_positions(const Threads& team, const ForEach& for_each,
                                       std::uint64_t bound, unsigned first, unsigned end,
                                       RowOutput& output, Window& window, unsigned* warp_sums) {
  constexpr int kWordsEach = Window::kWords / Threads::kThreads;
  static_assert(Window::kWords % Threads::kThreads == 0);
  static_assert(32 % kWordsEach == 0, "a stretch has no gap");
  const int own = spread(team.thread * kWordsEach);
  // Of a place beyond the window, any: steps without branches are fewer.
  const auto word_at = [](unsigned place) {
    return spread(static_cast<int>(place / 32 % Window::kWords));
  };
  for (unsigned origin = first; origin < end; origin += Window::kPositions) {
    team.sync();  // of the window before
#pragma unroll 4
    for (int i = team.thread; i < Window::kPlaces; i += Threads::kThreads) window.bits[i] = 0;
    team.sync();
    for_each([&](std::uint32_t rank, std::uint32_t position) {
      const unsigned place = position - origin;
      const bool is_chosen = code_of(rank, position) >= bound && place < Window::kPositions;
      atomicOr(&window.bits[word_at(place)], (is_chosen ? 1u : 0u) << (place % 32));
    });
    team.sync();
    const bool has_words = origin + 32u * kWordsEach * team.thread < end;
    unsigned count = 0;
#pragma unroll
    for (int i = 0; i < kWordsEach; ++i) {
      if (has_words) count += __popc(window.bits[own + i]);
    }
    const TeamSum sum = sum_before(team, count, warp_sums);
    unsigned before = sum.before;
#pragma unroll
    for (int i = 0; i < kWordsEach; ++i) {
      if (!has_words) break;
      window.before[own + i] = static_cast<std::uint16_t>(before);
      before += __popc(window.bits[own + i]);
    }
    team.sync();
    std::int32_t* slots = output.row + output.written;
    for_each([&](std::uint32_t rank, std::uint32_t position) {
      const unsigned place = position - origin;
      const int word = word_at(place);
      const std::uint32_t lower = window.bits[word] & ((1u << (place % 32)) - 1u);
      const int slot = window.before[word] + __popc(lower);
      if (code_of(rank, position) >= bound && place < Window::kPositions) {
        store(slots + slot, position);
      }
    });
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

}  // namespace quire::cuda::sm90::mla_indexer
