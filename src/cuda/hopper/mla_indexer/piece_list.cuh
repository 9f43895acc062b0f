// SPDX-License-Identifier: Apache-2.0
// Which pieces (params.h) make up a cut block of tokens, found by a whole thread block.
#pragma once

#include "cuda/hopper/mla_indexer/params.h"
#include "cuda/hopper/mla_indexer/piece_limits.h"
#include "cuda/hopper/mla_indexer/team.cuh"

namespace quire::cuda::hopper {

struct PieceBits {
  unsigned begun[kMaxParts / 32];      // thread block i has begun a block that others go on with
  unsigned continues[kMaxParts / 32];  // thread block i goes on with one, and does not end it
};

// The thread blocks [first, first + count) have a piece each; the first's is one that it began.
struct PieceList {
  int first = -1;
  int count = 0;

  __device__ int slot(int piece) const { return 2 * (first + piece) + (piece == 0 ? 1 : 0); }
};

template <typename Threads>
__device__ inline void mark_pieces(const Threads& team, const IndexParams& params,
                                   PieceBits& bits) {
  const int rounded = (params.parts + 31) / 32 * 32;
  for (int i = team.thread; i < rounded; i += Threads::kThreads) {
    const PieceHeader* own = params.pieces.headers + 2 * i;
    const bool exists = i < params.parts;
    const bool continues = exists && own[0].first_token >= 0 && own[0].continues != 0;
    const unsigned begun = __ballot_sync(kWholeWarp, exists && own[1].first_token >= 0);
    const unsigned going = __ballot_sync(kWholeWarp, continues);
    if (team.lane() == 0) {
      bits.begun[i / 32] = begun;
      bits.continues[i / 32] = going;
    }
  }
  team.sync();
}

// The index-th cut block; first -1: there are fewer.
__device__ inline PieceList find_pieces(const PieceBits& bits, int parts, int index) {
  const int words = (parts + 31) / 32;
  PieceList list;
  int word = 0;
  while (word < words && index >= __popc(bits.begun[word])) index -= __popc(bits.begun[word++]);
  if (word == words) return list;
  unsigned rest = bits.begun[word];
  for (; index > 0; --index) rest &= rest - 1;
  list.first = 32 * word + __ffs(static_cast<int>(rest)) - 1;
  // The first thread block behind it that does not go on.
  const int next = list.first + 1;
  word = next / 32;
  unsigned ends = word < words ? ~bits.continues[word] >> (next % 32) << (next % 32) : 0;
  while (ends == 0 && word + 1 < words) ends = ~bits.continues[++word];
  list.count = 32 * word + __ffs(static_cast<int>(ends)) - list.first;
  return list;
}

}  // namespace quire::cuda::hopper
