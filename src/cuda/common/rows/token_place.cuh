// SPDX-License-Identifier: Apache-2.0
// Where the tokens of a ragged batch stand: sequence, position, and tiles of rows. Their pages: paging/page_cursor.cuh.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/host_device.h"

namespace quire::cuda {

// Which sequence a token of a ragged batch belongs to.

// The last of `count` whose number is at most `value`, or the first; numbers ascend.
template <typename Index, typename NumberOf, typename Value>
__device__ inline Index last_at_most(Index count, const NumberOf& number_of, Value value) {
  Index low = 0;
  Index high = count - 1;
  while (low < high) {
    const Index middle = (low + high + 1) / 2;
    if (number_of(middle) <= value) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// The last sequence that begins at or before `token`; row_offsets u32 [batch + 1] ascends.
__device__ inline int sequence_of(const std::uint32_t* row_offsets, int batch,
                                  std::uint32_t token) {
  return last_at_most(
      batch, [&](int sequence) { return row_offsets[sequence]; }, token);
}

// Where a new token of a ragged batch stands: its sequence and its position.
// All of it is read on the device, so that a recorded launch serves other lengths.

struct TokenPlace {
  std::int64_t sequence = -1;  // -1: the token belongs to nobody (past the last offset)
  std::int64_t position = 0;   // absolute: cache_length + index among the new tokens

  __device__ bool exists() const { return sequence >= 0; }
};

// row_offsets u32 [batch + 1], cache_lengths u32 [batch].
__device__ inline TokenPlace place_of_token(const std::uint32_t* row_offsets,
                                            const std::uint32_t* cache_lengths, std::int64_t batch,
                                            std::int64_t token) {
  if (batch == 0 || token >= row_offsets[batch]) return {};
  const int sequence =
      sequence_of(row_offsets, static_cast<int>(batch), static_cast<std::uint32_t>(token));
  return {.sequence = sequence,
          .position = cache_lengths[sequence] + (token - row_offsets[sequence])};
}

// The places of many tokens at once, one per lane. The offsets and lengths of up to 32 sequences are loaded in
// one step and searched by shuffles: two loads follow each other (offsets, page table) where a lane that
// searches alone waits for five or more.

// All lanes of a warp make one, and find together.
class TokenFinder {
 public:
  __device__ TokenFinder(const std::uint32_t* row_offsets, const std::uint32_t* cache_lengths,
                         std::int64_t batch)
      : row_offsets_(row_offsets),
        cache_lengths_(cache_lengths),
        batch_(static_cast<int>(batch)),
        stride_((batch_ + kLanes - 1) / kLanes) {
    const int sample = static_cast<int>(threadIdx.x % kLanes) * stride_;
    if (sample < batch_) {
      offset_ = row_offsets[sample];
      length_ = cache_lengths[sample];
    }
    if (batch_ > 0) num_tokens_ = row_offsets[batch_];
  }

  __device__ std::int64_t num_tokens() const { return num_tokens_; }

  // Each lane its own token.
  __device__ TokenPlace find(std::int64_t token) const {
    int low = 0;
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2) {
      const std::uint32_t offset = __shfl_sync(kAll, offset_, low + step);
      if (offset <= token) low += step;
    }
    const std::uint32_t offset = __shfl_sync(kAll, offset_, low);
    const std::uint32_t length = __shfl_sync(kAll, length_, low);
    // Opaque: the compiler widens the number ahead of a caller's loop, and waits for it there, before it sends for rows.
    std::uint32_t num_tokens = num_tokens_;
    asm volatile("" : "+r"(num_tokens));
    if (token >= num_tokens) return {};
    if (stride_ > 1) return find_from(low * stride_, token);
    return {.sequence = low, .position = length + (token - offset)};
  }

 private:
  static constexpr int kLanes = 32;
  static constexpr unsigned kAll = 0xffffffffu;

  // The sample's sequence or one of those before the next sample.
  __device__ TokenPlace find_from(int first, std::int64_t token) const {
    const int count = min(stride_, batch_ - first);
    const int sequence =
        first + sequence_of(row_offsets_ + first, count, static_cast<std::uint32_t>(token));
    return {.sequence = sequence,
            .position = cache_lengths_[sequence] + (token - row_offsets_[sequence])};
  }

  const std::uint32_t* row_offsets_;
  const std::uint32_t* cache_lengths_;
  int batch_;
  int stride_;  // sequences from lane to lane
  std::uint32_t offset_ =
      0xffffffff;  // of the lane's sequence; past every token where there is none
  std::uint32_t length_ = 0;
  std::uint32_t num_tokens_ = 0;
};

// Tiles of the rows of a ragged batch, none of which spans two sequences, numbered so that a block
// finds its own from the offsets alone: no list, no prefix sum, no host.
//
// A sequence of the rows [a, b) owns the tiles from a / tile_rows + sequence on. The next one begins
// at or after their end, because (b - a) / tile_rows + 1 tiles suffice; numbers in between are empty.

// Tiles to launch for `rows` rows of `batch` sequences.
QUIRE_HOST_DEVICE constexpr std::int64_t num_row_tiles(std::int64_t rows, std::int64_t batch,
                                                       std::int64_t tile_rows) {
  return rows / tile_rows + batch;
}

struct RowTile {
  int sequence;
  std::int64_t first_row;  // within the sequence
  std::int64_t num_rows;   // ≤ 0: an empty tile

  __device__ bool is_empty() const { return num_rows <= 0; }
};

// row_offsets u32 [batch + 1] counts tokens, each of which has rows_per_token rows.
__device__ inline RowTile find_row_tile(const std::uint32_t* row_offsets, std::int64_t batch,
                                        std::int64_t rows_per_token, int tile_rows,
                                        std::int64_t tile) {
  const auto first_tile = [&](std::int64_t sequence) {
    return row_offsets[sequence] * rows_per_token / tile_rows + sequence;
  };
  const std::int64_t low = last_at_most(batch, first_tile, tile);
  const std::int64_t rows =
      (std::int64_t{row_offsets[low + 1]} - row_offsets[low]) * rows_per_token;
  const std::int64_t first = (tile - first_tile(low)) * tile_rows;
  return {.sequence = static_cast<int>(low),
          .first_row = first,
          .num_rows = min(rows - first, std::int64_t{tile_rows})};
}

}  // namespace quire::cuda
