// SPDX-License-Identifier: Apache-2.0
// The work of a batch as a list of key tiles, cut into equal parts, one for each CTA.
//
//   sequence 0                              sequence 1
//   | tokens 0, 1 | tokens 2, 3 | …         | tokens 0, 1 | …        a block of tokens
//   |F|0 1 2 3 4 5|F|0 1 2 3 4 5|           |F|0 1 2 3 |             F: what a block costs besides
//        ^ cut 1       ^ cut 2         ^ cut 3                       CTA c: [c, c + 1)
//
// Blocks of tokens that see no more than top_k keys are not on it. Everything follows from lengths in
// device memory, so that a captured graph replays with other lengths; the cost of the blocks before
// a block is a closed form, so that no CTA walks over the work of others.
#pragma once

#include <cstdint>

#include "quire/host_device.h"

namespace quire::cuda::sm90::mla_indexer {

inline constexpr int kIndexTileKeys = 64;
inline constexpr int kBlockCost = 6;  // of a split's end, in tiles

inline constexpr int kLeastPart = 4;  // of a CTA, in tiles

struct IndexBatch {
  const std::uint32_t* row_offsets = nullptr;    // [batch + 1]
  const std::uint32_t* cache_lengths = nullptr;  // [batch]
  int size = 0;
  int tokens = 0;        // rows of q
  int block_tokens = 1;  // a power of two up to 64
  int top_k = 0;
  bool is_causal = true;
  int tokens_per_key = 1;  // lengths and positions count tokens

  // Of so many tokens, those that are whole.
  QUIRE_HOST_DEVICE int keys_of(int all_tokens) const {
    return tokens_per_key == 1 ? all_tokens : all_tokens / tokens_per_key;
  }
};

// More of them are refused: what follows from them fits 32 bits.
inline constexpr int kMostTokensPerKey = 4096;

struct SequenceBlocks {
  int first_token = 0;  // row of q
  int tokens = 0;
  int cached = 0;       // tokens
  int keys = 0;         // once all tokens have come
  int first_block = 0;  // the first that is scored
  int blocks = 0;       // with those before it

  QUIRE_HOST_DEVICE bool has_work() const { return first_block < blocks; }
  QUIRE_HOST_DEVICE int num_keys() const { return keys; }
};

QUIRE_HOST_DEVICE inline SequenceBlocks sequence_blocks(const IndexBatch& batch, int sequence) {
  SequenceBlocks work;
  work.first_token = static_cast<int>(batch.row_offsets[sequence]);
  work.tokens = static_cast<int>(batch.row_offsets[sequence + 1]) - work.first_token;
  work.cached = static_cast<int>(batch.cache_lengths[sequence]);
  work.keys = batch.keys_of(work.cached + work.tokens);
  if (work.tokens <= 0 || work.num_keys() <= batch.top_k) return work;
  work.blocks = (work.tokens + batch.block_tokens - 1) / batch.block_tokens;
  // Tokens that see no more than top_k keys: key top_k is whole with the token before position (top_k + 1) · r.
  const int first_scored = (batch.top_k + 1) * batch.tokens_per_key - 1;
  const int unscored = batch.is_causal ? first_scored - work.cached : 0;
  work.first_block = unscored > 0 ? unscored / batch.block_tokens : 0;
  return work;
}

// Keys that token `index` of the sequence sees.
QUIRE_HOST_DEVICE inline int bound_of(const IndexBatch& batch, const SequenceBlocks& work,
                                      int index) {
  if (index >= work.tokens) return 0;
  return batch.is_causal ? batch.keys_of(work.cached + index + 1) : work.num_keys();
}

// Σ of ⌊i / size⌋ for i < count.
QUIRE_HOST_DEVICE inline std::int64_t sum_of_quotients(std::int64_t count, int size) {
  const std::int64_t whole = count / size;
  return size * (whole * (whole - 1) / 2) + count % size * whole;
}

// Of a block, counted as if it were full of tokens: the last may have a tile without keys.
QUIRE_HOST_DEVICE inline int tiles_of(const IndexBatch& batch, const SequenceBlocks& work,
                                      int block) {
  const int keys = batch.is_causal ? batch.keys_of(work.cached + (block + 1) * batch.block_tokens)
                                   : work.num_keys();
  return (keys + kIndexTileKeys - 1) / kIndexTileKeys;
}

// Of the scored blocks before `block`.
QUIRE_HOST_DEVICE inline std::int64_t cost_before(const IndexBatch& batch,
                                                  const SequenceBlocks& work, int block) {
  const int count = block - work.first_block;
  if (count <= 0) return 0;
  const std::int64_t fixed = std::int64_t{count} * kBlockCost;
  if (!batch.is_causal) return fixed + std::int64_t{count} * tiles_of(batch, work, 0);
  // Of r tokens to a key: ⌈⌊(cached + (b + 1) n) / r⌋ / 64⌉ = ⌊(⌊(cached + n + 63 r) / n⌋ + b) / (64 r / n)⌋
  const int n = batch.block_tokens;
  const int r = batch.tokens_per_key;
  const std::int64_t origin = (work.cached + n + (kIndexTileKeys - 1) * r) / n;
  const int size = kIndexTileKeys * r / n;
  return fixed + sum_of_quotients(origin + block, size) -
         sum_of_quotients(origin + work.first_block, size);
}

QUIRE_HOST_DEVICE inline std::int64_t cost_of(const IndexBatch& batch, const SequenceBlocks& work) {
  return cost_before(batch, work, work.blocks);
}

// The scored block in which `offset` < cost_of() lies.
QUIRE_HOST_DEVICE inline int block_at(const IndexBatch& batch, const SequenceBlocks& work,
                                      std::int64_t offset) {
  int low = work.first_block;
  int high = work.blocks - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (cost_before(batch, work, middle) <= offset) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// Tiles [first, end) of a block.
struct TileRange {
  int first = 0;
  int end = 0;
};

// What the part [begin, end) of the work list has of a block at `at` with `tiles` tiles.
QUIRE_HOST_DEVICE inline TileRange tiles_within(std::int64_t at, int tiles, std::int64_t begin,
                                                std::int64_t end) {
  const std::int64_t origin = at + kBlockCost;
  const std::int64_t first = begin > origin ? begin - origin : 0;
  const std::int64_t last = end - origin < tiles ? end - origin : tiles;
  return {.first = static_cast<int>(first), .end = static_cast<int>(last)};
}

}  // namespace quire::cuda::sm90::mla_indexer
