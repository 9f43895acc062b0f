// SPDX-License-Identifier: Apache-2.0
// One warp: walks the CTA's part of the work list, tells all others of every split, and loads its
// queries and their weights. It runs ahead of them.
#pragma once

#include "cuda/sm90/mla_indexer/config.h"
#include "cuda/sm90/mla_indexer/find_part.cuh"
#include "cuda/sm90/mla_indexer/shared.cuh"
#include "cuda/sm90/mla_indexer/tile_loader.cuh"

namespace quire::cuda::sm90::mla_indexer {

template <IndexConfig kConfig> class IndexLead {
 public:
  __device__ IndexLead(const IndexParams& params, IndexShared<kConfig>& shared)
      : params_(params), shared_(shared), batch_(params.batch) {
    // A constant: divisions by it, of which the work list has many, become shifts.
    batch_.block_tokens = kConfig.tokens;
  }

  __device__ void run() {
    if (lane() < 2) params_.splits.headers[2 * blockIdx.x + lane()].first_token = -1;
    const ListPart part = find_part(batch_, static_cast<int>(blockIdx.x), params_.parts);
    if (!part.is_empty()) walk(part);
    auto last = split_at_;
    for (int i = 0; i < Shared::kSplits; ++i, last.advance()) {
      shared_.split_ring.wait_empty(last);
      __syncwarp();
      if (is_missed(last.stage)) give_again(last.stage);
    }
    publish({});
  }

 private:
  using Split = IndexSplit<kConfig.tokens>;
  using Shared = IndexShared<kConfig>;

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }

  __device__ void walk(const ListPart& part) {
    int sequence = part.sequence;
    SequenceBlocks work = sequence_blocks(batch_, sequence);
    int block = block_at(batch_, work, part.begin - part.sequence_begin);
    std::int64_t at = part.sequence_begin + cost_before(batch_, work, block);
    while (at < part.end) {
      const int tiles = tiles_of(batch_, work, block);
      const TileRange range = tiles_within(at, tiles, part.begin, part.end);
      if (range.first < range.end) {
        give(make_split(work, block, range, tiles, sequence));
      }
      at += kBlockCost + tiles;
      if (++block < work.blocks) continue;
      do {
        if (++sequence >= batch_.size) return;
        work = sequence_blocks(batch_, sequence);
      } while (!work.has_work());
      block = work.first_block;
    }
  }

  __device__ Split make_split(const SequenceBlocks& work, int block, const TileRange& range,
                              int tiles, int sequence) const {
    const int first = block * kConfig.tokens;
    Split split{.first_token = work.first_token + first,
                .first_tile = range.first,
                .end_tile = range.end,
                .row_tiles = tiles,
                .stride = sample_stride(range.end - range.first),
                .continues = range.end < tiles ? 1 : 0,
                .sequence = sequence,
                .num_keys = work.num_keys()};
    if (range.first > 0) {
      split.slot = 2 * static_cast<int>(blockIdx.x);
    } else if (range.end < tiles) {
      split.slot = 2 * static_cast<int>(blockIdx.x) + 1;
    }
#pragma unroll
    for (int t = 0; t < kConfig.tokens; ++t) {
      const int bound = bound_of(batch_, work, first + t);
      split.bounds[t] = bound > batch_.top_k ? bound : 0;
      split.scored_rows |= (split.bounds[t] > 0 ? 1 : 0) << t;
    }
    return split;
  }

  // When its place is free. Where the sample of the split that had the place promised too much, that
  // one comes first once more.
  __device__ void give(const Split& split) {
    shared_.split_ring.wait_empty(split_at_);
    __syncwarp();
    while (is_missed(split_at_.stage)) {
      give_again(split_at_.stage);
      shared_.split_ring.wait_empty(split_at_);
      __syncwarp();
    }
    publish(split);
  }

  __device__ bool is_missed(int place) const {
    unsigned any = 0;
#pragma unroll
    for (int t = 0; t < kConfig.tokens; ++t) any |= shared_.missed[place][t];
    return any != 0;
  }

  __device__ void give_again(int place) {
    Split split = shared_.splits[place];
    split.stride = 0;
#pragma unroll
    for (int t = 0; t < kConfig.tokens; ++t) {
      if (shared_.missed[place][t] == 0) split.bounds[t] = 0;
    }
    __syncwarp();
    publish(split);
  }

  // With its queries and their weights; those who load tiles need not wait for these. first_token -1 is
  // the end.
  __device__ void publish(const Split& split) {
    shared_.split_ring.wait_empty(split_at_);
    __syncwarp();  // keeps writes behind the wait
    if (lane() == 0) {
      shared_.splits[split_at_.stage] = split;
      shared_.split_ring.full[split_at_.stage].arrive();
    }
    split_at_.advance();
    shared_.query_ring.wait_empty(query_at_);
    __syncwarp();
    FullBarrier& full = shared_.query_ring.full[query_at_.stage];
    if (lane() == 0) {
      shared_.query_tiles[query_at_.stage] = split.first_token < 0 ? -1 : split.tiles();
      if (split.first_token >= 0) {
        send_for_queries<kConfig>(params_, split.first_token, query_at_.stage, full, shared_);
      }
    }
    if (split.first_token >= 0) {
      copy_weights(split.first_token);
      arrive_with_queries<kConfig>(query_at_, full, shared_);
    } else {
      full.arrive();
    }
    query_at_.advance();
  }

  __device__ void copy_weights(int first_token) {
    const IndexWeights& weights = params_.weights;
    for (int i = lane(); i < kConfig.columns(); i += 32) {
      const int token = i / kConfig.heads;
      const int head = i % kConfig.heads;
      float weight = 0.0f;
      if (first_token + token < batch_.tokens) {
        weight =
            weights.data[(first_token + token) * weights.token_stride + head * weights.head_stride];
      }
      shared_.weights[query_at_.stage][HeadSums<kConfig>::weight_place(token, head)] =
          0.5f * weight;
    }
  }

  const IndexParams& params_;
  IndexShared<kConfig>& shared_;
  IndexBatch batch_;
  RingPosition<Shared::kSplits> split_at_;
  RingPosition<Shared::kQueries> query_at_;
};

}  // namespace quire::cuda::sm90::mla_indexer
