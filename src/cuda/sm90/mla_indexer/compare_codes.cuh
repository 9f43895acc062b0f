// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/rows/rank.cuh"
#include "cuda/sm90/mla_indexer/team.cuh"

namespace quire::cuda::sm90::mla_indexer {

inline constexpr int kMostCandidates = 128;

// The wanted-th best of a few codes: the one that wanted - 1 are greater than. Ends with a sync behind which
// all read it from `found`.
template <typename Threads>
__device__ inline std::uint64_t compare_codes(const Threads& team, const std::uint64_t* codes,
                                              int count, unsigned wanted, std::uint64_t& found) {
  std::uint64_t others[kMostCandidates / 32];
#pragma unroll
  for (int i = 0; i < kMostCandidates / 32; ++i) {
    const int at = 32 * i + team.lane();
    others[i] = at < count ? codes[at] : 0;
  }
#pragma unroll 1
  for (int own = team.warp(); own < count; own += Threads::kWarps) {
    const std::uint64_t code = codes[own];
    unsigned greater = 0;
    for (const std::uint64_t other : others) {
      greater += __popc(__ballot_sync(kWholeWarp, other > code));
    }
    if (greater == wanted - 1 && team.lane() == 0) found = code;
  }
  team.sync();
  return found;
}

}  // namespace quire::cuda::sm90::mla_indexer
