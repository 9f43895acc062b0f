// SPDX-License-Identifier: Apache-2.0
// Scores that may still be among the best.
#pragma once

#include "cpu/mla_indexer/indexer_item.h"
#include "cpu/simd/convert.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// Order-preserving: -0 as +0, NaN below everything.
inline auto rank_of(F32Vector score) {
  const F32Tag f32;
  const hn::RebindToSigned<F32Tag> i32;
  const auto bits = hn::BitCast(i32, hn::Add(score, hn::Zero(f32)));
  const auto flipped = hn::Xor(bits, hn::And(hn::ShiftRight<31>(bits), hn::Set(i32, 0x7fffffff)));
  const auto is_nan = hn::RebindMask(i32, hn::IsNaN(score));
  return hn::IfThenElse(is_nan, hn::Set(i32, static_cast<std::int32_t>(0x80000000u)), flipped);
}

// The candidates of one vector, the first `lanes` of which count; those without a row are left out.
template <typename Ranks>
inline int take_lanes(const CandidateFilter& filter, int first, Ranks rank, ScoredKey* out) {
  const hn::RebindToSigned<F32Tag> i32;
  alignas(64) std::int32_t ranks[kF32Lanes];
  hn::Store(rank, i32, ranks);
  int found = 0;
  for (int i = 0; i < kF32Lanes && first + i < filter.count; ++i) {
    const bool is_better = filter.takes_all || ranks[i] > filter.threshold;
    if (!is_better || filter.keys->rows[first + i] == nullptr) continue;
    out[found++] = {.rank = ranks[i],
                    .position = filter.first_position + static_cast<std::uint32_t>(first + i)};
  }
  return found;
}

inline int filter_candidates(const CandidateFilter& filter, const float* scores, ScoredKey* out) {
  const F32Tag f32;
  const hn::RebindToSigned<F32Tag> i32;
  const auto threshold = hn::Set(i32, filter.threshold);
  int found = 0;
  for (int first = 0; first < filter.count; first += kF32Lanes) {
    const auto rank = rank_of(hn::LoadU(f32, scores + first));
    if (!filter.takes_all && hn::AllFalse(i32, hn::Gt(rank, threshold))) continue;
#if defined(__AVX512F__)
    if (!filter.keys->has_holes && first + kF32Lanes <= filter.count) {
      const __mmask16 taken =
          filter.takes_all ? 0xffff : _mm512_cmpgt_epi32_mask(rank.raw, threshold.raw);
      const auto position = hn::Iota(i32, static_cast<std::int32_t>(filter.first_position) + first);
      const __m512i ranks = _mm512_maskz_compress_epi32(taken, rank.raw);
      const __m512i positions = _mm512_maskz_compress_epi32(taken, position.raw);
      const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
      _mm512_storeu_si512(out + found, _mm512_permutex2var_epi32(ranks, low, positions));
      _mm512_storeu_si512(out + found + 8, _mm512_permutex2var_epi32(ranks, high, positions));
      found += __builtin_popcount(taken);
      continue;
    }
#endif
    found += take_lanes(filter, first, rank, out + found);
  }
  return found;
}

// The k-th greatest of ranks [count], 1 ≤ k ≤ count: the greatest value that k of them reach, by
// bisection. Counting is so fast on vectors that this beats a partition by far. What follows ranks
// up to the end of their vector is overwritten.
inline std::int32_t kth_rank(std::int32_t* ranks, std::int64_t count, std::int64_t k) {
  const hn::RebindToSigned<F32Tag> i32;
  constexpr std::int32_t kLowest = static_cast<std::int32_t>(0x80000000u);
  const std::int64_t padded = (count + kF32Lanes - 1) / kF32Lanes * kF32Lanes;
  for (std::int64_t i = count; i < padded; ++i) ranks[i] = kLowest;  // greater than no one
  const auto count_above = [&](std::int64_t limit) {
    const auto bound = hn::Set(i32, static_cast<std::int32_t>(limit));
    auto below = hn::Zero(i32);  // minus one per rank
    for (std::int64_t i = 0; i < padded; i += kF32Lanes) {
      below = hn::Add(below, hn::VecFromMask(i32, hn::Gt(hn::LoadU(i32, ranks + i), bound)));
    }
    return -static_cast<std::int64_t>(hn::GetLane(hn::SumOfLanes(i32, below)));
  };
  std::int64_t low = kLowest;                        // k ranks reach it
  std::int64_t high = 0x7fffffff + std::int64_t{1};  // fewer do
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (count_above(middle - 1) >= k ? low : high) = middle;
  }
  return static_cast<std::int32_t>(low);
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
