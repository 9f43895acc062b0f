// SPDX-License-Identifier: Apache-2.0
// Which tiles of query rows a persistent block takes: the next one off a counter, so that blocks
// that finish early do more.
//
// Tiles are counted sequence by sequence; within a sequence in sections of KV heads whose K and V
// stay in L2 together, and within a section from the last rows, which see most keys, to the first:
// the longest work starts first and the end of the grid is even. Where the last tiles are long and
// fewer than the CTAs, they are cut (tail_cuts.h). Lengths are read here, on the device, so
// a captured graph may be replayed with others.
#pragma once

#include "cuda/common/prefill_attention/config.h"
#include "cuda/common/prefill_attention/params.h"
#include "cuda/common/prefill_attention/tail_cuts.h"
#include "cuda/common/thread/thread.cuh"
#include "cuda/common/thread/warp_reduce.cuh"

namespace quire::cuda {

struct PrefillTile {
  int sequence;   // -1: no more tiles
  int first_row;  // of the sequence, in q
  int tokens;     // new ones of the sequence
  int position;   // of its first new token
  int first_key;  // positions of the keys that there are
  int end_key;
  int first_token;  // of the tile, in the sequence
  int head_tile;
  int kv_head;
  int first_block;  // of keys: block b begins at first_key + b · block_keys. At least one
  int end_block;
  TileSplits splits;
};

// By a whole warp: sequences are searched 32 at a time. Indices must not decrease from call to call.
template <PrefillConfig kConfig> class PrefillSchedule {
 public:
  __device__ explicit PrefillSchedule(const PrefillParams& params) : params_(params) {
    if constexpr (kConfig.cuts_tiles()) {
      if (params.tail.sums != nullptr) plan_tail();
    }
    if constexpr (kConfig.cluster > 1) next_of_cluster_ = cluster_index<kConfig.cluster>();
  }

  __device__ PrefillTile next() {
    if constexpr (kConfig.cuts_tiles()) {
      return next_cut();
    } else {
      return find(take());
    }
  }

 private:
  // A split of the tile that is being cut, or the next tile.
  __device__ PrefillTile next_cut() {
    for (;;) {
      while (tail_tile_ < end_tail_tile_) {
        const PrefillTile split = next_split();
        if (split.end_block > split.first_block) return split;
      }
      const int index = take();
      const int part = index - cuts_.whole;
      if (part < 0) return find(index);
      if (part >= cuts_.parts) return {.sequence = -1};
      part_ = part;
      tail_tile_ = cuts_.first_tile(part);
      end_tail_tile_ = cuts_.end_tile(part);
    }
  }

  static constexpr unsigned kWarp = 0xffffffff;

  // CTAs of a cluster walk the same tiles without telling each other: every so many of the list.
  __device__ int take() {
    if constexpr (kConfig.cluster > 1) {
      const int taken = next_of_cluster_;
      next_of_cluster_ += num_clusters<kConfig.cluster>();
      return taken;
    }
    int index = 0;
    if (lane() == 0) index = atomicAdd(params_.next_tile, 1);
    return __shfl_sync(kWarp, index, 0);
  }
  __device__ void plan_tail() {
    const int tiles = __shfl_sync(kWarp, sum_up_to_lane(num_tiles(lane()), lane()), 31);
    const auto thread_blocks = static_cast<int>(gridDim.x);
    const int rest = tiles % thread_blocks;
    if (rest == 0) return;
    const PrefillTile first = find(tiles - rest);
    cuts_ =
        cut_tail(tiles, thread_blocks, first.end_block - first.first_block, params_.tail.slowness);
  }
  // Of part_, in the next of its tiles; it may have no block there.
  __device__ PrefillTile next_split() {
    PrefillTile tile = find(cuts_.whole + tail_tile_);
    const int blocks = tile.end_block - tile.first_block;
    tile.splits = tile_splits(cuts_, part_, tail_tile_, blocks);
    tile.end_block = tile.first_block + cuts_.cut(part_ + 1, tail_tile_, blocks);
    tile.first_block += cuts_.cut(part_, tail_tile_, blocks);
    ++tail_tile_;
    return tile;
  }
  __device__ PrefillTile find(int index) {
    for (; first_sequence_ < params_.batch; first_sequence_ += 32) {
      const int before = num_tiles(first_sequence_ + lane());
      const int end = tiles_before_ + sum_up_to_lane(before, lane());
      const unsigned later = __ballot_sync(kWarp, index < end);
      if (later != 0) {
        const int found = __ffs(later) - 1;
        return tile_of(first_sequence_ + found, index - __shfl_sync(kWarp, end - before, found));
      }
      tiles_before_ = __shfl_sync(kWarp, end, 31);
    }
    return {.sequence = -1};
  }

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ int row_tiles(int tokens) const {
    return ((tokens << params_.tile_heads_log2) + kConfig.rows() - 1) / kConfig.rows();
  }
  __device__ int num_tiles(int sequence) const {
    if (sequence >= params_.batch) return 0;
    const auto tokens =
        static_cast<int>(params_.row_offsets[sequence + 1] - params_.row_offsets[sequence]);
    return tokens <= params_.passed_tokens ? 0 : row_tiles(tokens) * params_.head_tiles;
  }
  // Head tiles of a section: as many KV heads as section_keys hold of this length.
  __device__ int section_tiles(int num_keys) const {
    const int kv_heads = params_.section_keys / (num_keys > 1 ? num_keys : 1);
    const int tiles = (kv_heads > 1 ? kv_heads : 1) * params_.kv_head_tiles;
    return tiles < params_.head_tiles ? tiles : params_.head_tiles;
  }
  __device__ PrefillTile tile_of(int sequence, int index) const {
    PrefillTile tile{.sequence = sequence};
    tile.first_row = static_cast<int>(params_.row_offsets[sequence]);
    tile.tokens = static_cast<int>(params_.row_offsets[sequence + 1]) - tile.first_row;
    tile.position = static_cast<int>(params_.cache_lengths[sequence]);
    const KeySpans& spans = params_.spans;
    tile.first_key = spans.first == nullptr ? 0 : static_cast<int>(spans.first[sequence]);
    tile.end_key =
        spans.end == nullptr ? tile.position + tile.tokens : static_cast<int>(spans.end[sequence]);
    place(index, tile);
    return tile;
  }
  // Where in its sequence the tile of this number stands, and the blocks of keys that it sees.
  __device__ void place(int index, PrefillTile& tile) const {
    const int rows = row_tiles(tile.tokens);
    const int width = section_tiles(tile.end_key - tile.first_key);
    const int section = index / (rows * width);
    const int left = params_.head_tiles - section * width;
    const int section_width = width < left ? width : left;
    const int within = index - section * rows * width;
    tile.head_tile = section * width + within % section_width;
    tile.kv_head = tile.head_tile / params_.kv_head_tiles;
    const int tile_tokens = kConfig.rows() >> params_.tile_heads_log2;
    tile.first_token = (rows - 1 - within / section_width) * tile_tokens;
    const int behind = tile.first_token + tile_tokens;
    const int last_token = (behind < tile.tokens ? behind : tile.tokens) - 1;
    // A window may begin behind the keys that there are: key_lengths and chunks of a buffer end before it. A block always
    // begins before end_key, or at it: rows of V from there on are zeroed by number.
    const int seen_from = params_.mask.of(tile.position + tile.first_token, tile.end_key).first;
    const int before = seen_from < tile.end_key ? seen_from : tile.end_key;
    const int seen = before > tile.first_key ? before - tile.first_key : 0;
    const int end = params_.mask.of(tile.position + last_token, tile.end_key).end - tile.first_key;
    tile.first_block = seen / kConfig.block_keys;
    const int end_block = (end + kConfig.block_keys - 1) / kConfig.block_keys;
    // Rows that see nothing have a block too, all of it hidden: they are stored like others.
    tile.end_block = end_block > tile.first_block ? end_block : tile.first_block + 1;
  }

  const PrefillParams& params_;
  int first_sequence_ = 0;
  int tiles_before_ = 0;
  int next_of_cluster_ = 0;
  TailCuts cuts_{.whole = 0x7fffffff};
  // The splits of its part that are still to come.
  int part_ = 0;
  int tail_tile_ = 0;
  int end_tail_tile_ = 0;
};

}  // namespace quire::cuda
