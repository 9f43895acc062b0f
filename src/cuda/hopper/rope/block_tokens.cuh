// SPDX-License-Identifier: Apache-2.0
// The tokens of a block, looked up once for all their heads: position and page hang on four loads,
// one after the other, which take longer than moving the rows.
#pragma once

#include "cuda/hopper/rope/params.h"
#include "cuda/rows/divisor.h"
#include "cuda/rows/token_place.cuh"

namespace quire::cuda::hopper {

inline constexpr int kRopeThreads = 256;
inline constexpr int kRopeWarps = kRopeThreads / 32;

struct BlockToken {
  std::int64_t position = -1;  // -1: the token is nobody's
  std::byte* keys = nullptr;   // the key row of head 0, null where its page is unassigned

  __device__ bool exists() const { return position >= 0; }
};

// A warp's share of the block's work: some heads of one token.
struct RopeItem {
  int token;  // of the block
  int chunk;  // of heads
};

struct RopeGrid {
  int block_tokens;  // at most kMostBlockTokens
  Divisor chunks;    // of a token's heads

  static constexpr int kMostBlockTokens = 16;

  __device__ RopeItem item(int index) const {
    const auto token = static_cast<int>(chunks.quotient(index));
    return {token, index - token * static_cast<int>(chunks.value())};
  }
};

// Few tokens spread over the card, a token each; many share the lookups.
inline RopeGrid rope_grid(const RopeParams& params, int heads_per_chunk, int num_sms) {
  const int heads = params.heads + params.key_heads;
  const std::int64_t share = params.tokens / (std::int64_t{4} * num_sms);
  const auto most = std::int64_t{RopeGrid::kMostBlockTokens};
  return {
      .block_tokens = static_cast<int>(share < 1      ? 1
                                       : share > most ? most
                                                      : share),
      .chunks = Divisor(static_cast<unsigned>((heads + heads_per_chunk - 1) / heads_per_chunk))};
}

__device__ inline void find_tokens(const RopeParams& params, std::int64_t first, int count,
                                   BlockToken* tokens) {
  const auto t = static_cast<int>(threadIdx.x);
  if (t >= count) return;
  const TokenPlace place =
      place_of_token(params.row_offsets, params.key.cache_lengths, params.key.batch, first + t);
  tokens[t] = {.position = place.exists() ? place.position : -1,
               .keys = params.key_heads > 0 ? first_row(params.key, place) : nullptr};
}

// Rotation(params, token, chunk, more…) is a warp's work on one item: load_query(), then
// finish(BlockToken).
template <typename Rotation, typename... More>
__device__ void rotate_block(const RopeParams& params, const RopeGrid& grid, const More&... more) {
  __shared__ BlockToken tokens[RopeGrid::kMostBlockTokens];
  const std::int64_t first = std::int64_t{blockIdx.x} * grid.block_tokens;
  const std::int64_t left = params.tokens - first;
  const int count = left < grid.block_tokens ? static_cast<int>(left) : grid.block_tokens;
  const int num_items = count * static_cast<int>(grid.chunks.value());
  int index = static_cast<int>(threadIdx.x) / 32;
  // The first rows of q are on their way before the tokens are looked up.
  RopeItem item = grid.item(index);
  Rotation rotation(params, first + item.token, item.chunk, more...);
  if (index < num_items) rotation.load_query();
  find_tokens(params, first, count, tokens);
  __syncthreads();
  while (index < num_items) {
    rotation.finish(tokens[item.token]);
    index += kRopeWarps;
    if (index >= num_items) return;
    item = grid.item(index);
    rotation = Rotation(params, first + item.token, item.chunk, more...);
    rotation.load_query();
  }
}

}  // namespace quire::cuda::hopper
