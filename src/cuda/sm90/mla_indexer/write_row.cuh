// SPDX-License-Identifier: Apache-2.0
// Chosen positions in ascending order: a bit for each position of a window, and for each word of bits how
// many stand before it; then every position knows its place.
#pragma once

#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/sm90/mla_indexer/params.h"
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

// Rows that see no more than top_k keys take all that have a page: a warp to a row.

// Four numbers at `slot`, or the first `count` of them.
__device__ inline void write_four(std::int32_t* slot, int4 four, int count) {
  if (count == 4 && reinterpret_cast<std::uintptr_t>(slot) % sizeof(int4) == 0) {
    *reinterpret_cast<int4*>(slot) = four;
    return;
  }
  if (count > 0) slot[0] = four.x;
  if (count > 1) slot[1] = four.y;
  if (count > 2) slot[2] = four.z;
  if (count > 3) slot[3] = four.w;
}

// A lane takes four keys at a time: they are of one page, whose size is a multiple of 16.
__device__ inline void write_unscored_row(const IndexParams& params, int token, int sequence,
                                          int bound) {
  const PageCursor pages(params.pages.keys, sequence);
  const auto lane = static_cast<int>(threadIdx.x % 32);
  std::int32_t* row = params.out + token * params.out_stride;
  const int top_k = params.batch.top_k;
  int written = 0;
#pragma unroll 1
  for (int first = 0; first < bound; first += 128) {
    const int key = first + 4 * lane;
    const int count = pages.is_mapped(pages.find(key, bound)) ? min(4, bound - key) : 0;
    const auto up_to = static_cast<int>(sum_up_to_lane(static_cast<unsigned>(count), lane));
    write_four(row + written + up_to - count, {key, key + 1, key + 2, key + 3}, count);
    written += __shfl_sync(kWholeWarp, up_to, 31);
  }
  const int aligned = (written + 3) / 4 * 4;
  if (lane < aligned - written && written + lane < top_k) row[written + lane] = -1;
#pragma unroll 1
  for (int slot = aligned + 4 * lane; slot < top_k; slot += 128) {
    write_four(row + slot, {-1, -1, -1, -1}, min(4, top_k - slot));
  }
}

// Tokens first, first + step, …; called by whole warps.
__device__ inline void write_unscored_rows(const IndexParams& params, int first, int step) {
  const IndexBatch& batch = params.batch;
  const int tokens = min(batch.tokens, static_cast<int>(batch.row_offsets[batch.size]));
  for (int token = first; token < tokens; token += step) {
    const int sequence =
        sequence_of(batch.row_offsets, batch.size, static_cast<std::uint32_t>(token));
    const SequenceBlocks work = sequence_blocks(batch, sequence);
    const int bound = bound_of(batch, work, token - work.first_token);
    if (bound <= batch.top_k) write_unscored_row(params, token, sequence, bound);
  }
}

}  // namespace quire::cuda::sm90::mla_indexer
