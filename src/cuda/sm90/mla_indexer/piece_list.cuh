// SPDX-License-Identifier: Apache-2.0
// Which pieces (params.h) make up a cut block of tokens, and what they have of one of its rows: read by
// a whole thread block in one go.
#pragma once

#include "cuda/sm90/mla_indexer/params.h"
#include "cuda/sm90/mla_indexer/piece_limits.h"
#include "cuda/sm90/mla_indexer/team.cuh"

namespace quire::cuda::sm90::mla_indexer {

struct PieceTable {
  unsigned begun[kMaxParts / 32];      // thread block i has begun a block that others go on with
  unsigned continues[kMaxParts / 32];  // thread block i goes on with one, and does not end it
  // Of the slots (params.h), where there is a piece.
  RowPart rows[2 * kMaxParts];
  int first_tokens[2 * kMaxParts];
  int scored_rows[2 * kMaxParts];
  int2 tiles[2 * kMaxParts];  // first and end
};

// The thread blocks [first, first + count) have a piece each; the first's is one that it began.
struct PieceList {
  int first = -1;
  int count = 0;

  __device__ int slot(int piece) const { return 2 * (first + piece) + (piece == 0 ? 1 : 0); }
};

template <typename Threads>
__device__ inline void read_pieces(const Threads& team, const IndexParams& params, int row,
                                   PieceTable& table) {
  const int rounded = (params.parts + 31) / 32 * 32;
  for (int i = team.thread; i < rounded; i += Threads::kThreads) {
    bool is_begun = false;
    bool continues = false;
    if (i < params.parts) {
      const PieceHeader* own = params.pieces.headers + 2 * i;
      is_begun = own[1].first_token >= 0;
      continues = own[0].first_token >= 0 && own[0].continues != 0;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        table.rows[2 * i + j] = own[j].rows[row];
        table.first_tokens[2 * i + j] = own[j].first_token;
        table.scored_rows[2 * i + j] = own[j].scored_rows;
        table.tiles[2 * i + j] = {own[j].first_tile, own[j].end_tile};
      }
    }
    const unsigned begun = __ballot_sync(kWholeWarp, is_begun);
    const unsigned going = __ballot_sync(kWholeWarp, continues);
    if (team.lane() == 0) {
      table.begun[i / 32] = begun;
      table.continues[i / 32] = going;
    }
  }
  team.sync();
}

// The index-th cut block; first -1: there are fewer.
__device__ inline PieceList find_pieces(const PieceTable& table, int parts, int index) {
  const int words = (parts + 31) / 32;
  PieceList list;
  int word = 0;
  while (word < words && index >= __popc(table.begun[word])) index -= __popc(table.begun[word++]);
  if (word == words) return list;
  unsigned rest = table.begun[word];
  for (; index > 0; --index) rest &= rest - 1;
  list.first = 32 * word + __ffs(static_cast<int>(rest)) - 1;
  // The first thread block behind it that does not go on.
  const int next = list.first + 1;
  word = next / 32;
  unsigned ends = word < words ? ~table.continues[word] >> (next % 32) << (next % 32) : 0;
  while (ends == 0 && word + 1 < words) ends = ~table.continues[++word];
  list.count = 32 * word + __ffs(static_cast<int>(ends)) - list.first;
  return list;
}

}  // namespace quire::cuda::sm90::mla_indexer
