// SPDX-License-Identifier: Apache-2.0
// Four warps: walk the work, and keep the ring full of keys and values across the borders of items.
// Rows are copied 16 bytes a lane: from HBM that is faster than boxes of the copy engine (4.37 against
// 4.0 TB/s of 256-byte rows), and pages may have any size. What no row sees is not read but zero.
#pragma once

#include "cuda/hopper/flash_attention/decode/async_copy.cuh"
#include "cuda/hopper/flash_attention/decode/join_pieces.cuh"
#include "cuda/hopper/flash_attention/decode/shared.cuh"

namespace quire::cuda::hopper {

template <DecodeConfig kConfig> class LoadRole {
 public:
  __device__ LoadRole(const DecodeParams& params, DecodeShared<kConfig>& shared)
      : params_(params),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x) - DecodeConfig::kThreads) {}

  __device__ void run() {
    const WorkCuts cuts = cut_batch(params_);
    policy_ = policy_of(cuts.total);
    WorkWalk walk = start_walk(params_, cuts, static_cast<int>(blockIdx.x));
    for (WorkPiece piece; walk.next(piece); items_at_.advance()) {
      const DecodeItem item = describe(walk.work(), piece);
      load_queries(item);
      load_item(item, walk.sequence());
    }
    shared_.item_ring.wait_empty(items_at_);
    announce({});
    if (params_.pieces.marks != nullptr) join_pieces<kConfig>(params_, cuts, thread_ / 32);
  }

 private:
  // Streamed keys push dirty lines out of L2, whose writing back they then wait for: 2 % of 150 µs, less
  // if they take their own places first. For many bytes it is the other way round: 2 % of 530 µs.
  __device__ static L2Policy policy_of(int blocks) {
    constexpr std::int64_t kManyBytes = std::int64_t{768} << 20;
    const bool is_long = std::int64_t{blocks} * kConfig.stage_bytes() > kManyBytes;
    return is_long ? L2Policy::normal : L2Policy::evict_first;
  }
  __device__ int lane_piece() const { return thread_ % kConfig.row_lanes(); }
  __device__ int key_group() const { return thread_ / kConfig.row_lanes(); }

  __device__ DecodeItem describe(const SequenceWork& work, const WorkPiece& piece) const {
    const DecodeBatch& batch = params_.batch;
    const int skipped = piece.tile * batch.tile_tokens;
    const int tokens = min(work.tokens - skipped, batch.tile_tokens);
    const int position = work.cached + skipped;
    const KeyInterval first = batch.visible.of(position, work.num_keys());
    const KeyInterval last = batch.visible.of(position + tokens - 1, work.num_keys());
    return {.begin = work.first_block + piece.begin,
            .end = work.first_block + piece.end,
            .whole_begin = (last.first + kBlockKeys - 1) / kBlockKeys,
            .whole_end = first.end / kBlockKeys,
            .first_key = first.first,
            .last_key = last.end,
            .num_keys = work.num_keys(),
            .first_token = work.first_token + skipped,
            .position = position,
            .rows = tokens * batch.group,
            .kv_head = piece.kv_head,
            .slot = piece.slot};
  }

  // Arrivals of a thread: when its copies so far have landed, and for `item` itself.
  __device__ void announce(const DecodeItem& item) {
    FullBarrier& full = shared_.item_ring.full[items_at_.stage];
    cutlass::arch::cpasync_barrier_arrive_noinc(reinterpret_cast<std::uint64_t*>(&full));
    if (thread_ != 0) return;
    shared_.item[items_at_.stage] = item;
    full.arrive();
  }

  __device__ void load_queries(const DecodeItem& item) {
    constexpr int kRowPieces = 8 * kConfig.query_slabs();
    const DecodeQueries& queries = params_.queries;
    shared_.item_ring.wait_empty(items_at_);
#pragma unroll
    for (int i = thread_; i < kConfig.rows * kRowPieces; i += DecodeConfig::kLoadThreads) {
      const int row = i / kRowPieces;
      const int piece = i % kRowPieces;
      const int token = item.first_token + row / params_.batch.group;
      const int head = item.kv_head * params_.batch.group + row % params_.batch.group;
      const bool is_there = row < item.rows && piece * 16 < queries.row_bytes;
      copy_async(&shared_.queries[items_at_.stage][piece / 8][row * 128 + ((piece ^ row) % 8) * 16],
                 queries.data + token * queries.token_stride_bytes +
                     head * queries.head_stride_bytes + piece * 16,
                 is_there, L2Policy::normal);
    }
    announce(item);
  }

  // The page of a key, ≥ num_pages if there is none.
  __device__ unsigned page_of(const std::uint32_t* table, int column) const {
    return column < params_.pages.max_pages ? table[column] : params_.pages.num_pages;
  }

  __device__ void load_item(const DecodeItem& item, int sequence) {
    const DecodePages& pages = params_.pages;
    const std::uint32_t* table = pages.table + sequence * pages.table_stride;
    int key = item.begin * kBlockKeys + key_group() * kConfig.lane_keys();
    KeyPlace place = find(table, key, item.last_key);
    for (int block = item.begin; block < item.end; ++block, at_.advance()) {
      // On its way while this block waits for its stage.
      const KeyPlace next = find(table, key + kBlockKeys, item.last_key);
      load_block(item, table, key, place);
      key += kBlockKeys;
      place = next;
    }
  }

  struct KeyPlace {
    unsigned page;
    int row;  // of the page
  };
  __device__ KeyPlace find(const std::uint32_t* table, int key, int last_key) const {
    const int column = key / params_.pages.page_size;
    return {.page = key < last_key ? page_of(table, column) : params_.pages.num_pages,
            .row = key - column * params_.pages.page_size};
  }

  // K and V of this lane's neighbouring keys, `place` being that of the first.
  __device__ void load_block(const DecodeItem& item, const std::uint32_t* table, int key,
                             KeyPlace place) {
    const DecodePages& pages = params_.pages;
    const int piece = lane_piece();
    const int group_row = key_group() * kConfig.lane_keys();
    const bool has_bytes = piece * 16 < pages.row_bytes;
    unsigned mapped = 0;
    shared_.ring.wait_empty(at_);
    std::byte* target = shared_.keys(at_.stage) + piece / 8 * (kBlockKeys * 128);
#pragma unroll
    for (int i = 0; i < kConfig.lane_keys(); ++i) {
      if (i > 0 && ++place.row == pages.page_size) place = find(table, key + i, item.last_key);
      const bool is_mapped = place.page < pages.num_pages;
      const bool is_seen = key + i >= item.first_key && key + i < item.last_key;
      const std::byte* source = pages.keys + place.page * pages.page_stride_bytes +
                                place.row * pages.token_stride_bytes +
                                item.kv_head * pages.head_stride_bytes + piece * 16;
      mapped |= is_mapped ? 1U << i : 0U;
      if (piece >= 8 * kConfig.slabs) continue;
      std::byte* row = target + (group_row + i) * 128 + ((piece ^ (group_row + i)) % 8) * 16;
      copy_async(row, source, is_mapped && is_seen && has_bytes, policy_);
      copy_async(row + kConfig.side_bytes(), source + pages.value_offset_bytes,
                 is_mapped && is_seen && has_bytes, policy_);
    }
    finish_stage(mapped);
  }

  __device__ void finish_stage(unsigned mapped) {
    FullBarrier& full = shared_.ring.full[at_.stage];
    cutlass::arch::cpasync_barrier_arrive_noinc(reinterpret_cast<std::uint64_t*>(&full));
    if (lane_piece() != 0) return;
    shared_.mapped[at_.stage][key_group()] = static_cast<std::uint16_t>(mapped);
    full.arrive();
  }

  const DecodeParams& params_;
  DecodeShared<kConfig>& shared_;
  int thread_;
  L2Policy policy_ = L2Policy::evict_first;
  RingPosition<kConfig.items> items_at_;
  RingPosition<kConfig.stages> at_;
};

}  // namespace quire::cuda::hopper
