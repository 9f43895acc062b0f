// SPDX-License-Identifier: Apache-2.0
// Four warps: walk the work, and keep the ring full of keys and values across the borders of items.
// Rows are copied 16 bytes a lane: from HBM that is faster than TMA boxes (4.37 against
// 4.0 TB/s of 256-byte rows), and pages may have any size. What no row sees is not read but zero.
#pragma once

#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/sm90/flash_attention/decode/epilogue.cuh"
#include "cuda/sm90/flash_attention/decode/shared.cuh"

namespace quire::cuda::sm90::flash_attention {

template <DecodeConfig kConfig> class LoadRole {
 public:
  __device__ LoadRole(const DecodeParams& params, DecodeShared<kConfig>& shared)
      : params_(params),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x % DecodeConfig::kLoadThreads)) {}

  __device__ void run() {
    static_assert(DecodeConfig::kThreads % DecodeConfig::kLoadThreads == 0);
    LineScan line(params_.batch, params_.split, shared_.line, thread_);
    const WorkCuts cuts = cut_work(params_.split, line.add_up());
    const int part = params_.lines.part(static_cast<int>(blockIdx.x));
    policy_ = policy_of(cuts.total << params_.lines.bits);
    if (part < cuts.parts && cuts.total > 0) load_part(cuts, line.find(cuts.at(part)), part);
    shared_.item_ring.wait_empty(items_at_);
    announce({});
    if (params_.pieces.marks == nullptr) return;
    join_pieces<kConfig>(params_, cuts, shared_.line.place, part, thread_ / 32);
  }

 private:
  __device__ void load_part(const WorkCuts& cuts, const LinePlace& place, int part) {
    WorkWalk walk(params_.batch, params_.split, cuts, place, part);
    for (WorkPiece piece; walk.next(piece); items_at_.advance()) {
      load_item(describe(walk.work(), piece, walk.sequence()), walk.sequence());
    }
  }

  // Streamed keys push dirty lines out of L2, whose writing back they then wait for: 3 µs of 50 to 80 less
  // if they take their own places first. For many bytes it is the other way round: 6 µs of 140.
  __device__ static L2Policy policy_of(int blocks) {
    constexpr std::int64_t kManyBytes = std::int64_t{240} << 20;
    const bool is_long = std::int64_t{blocks} * kConfig.stage_bytes() > kManyBytes;
    return is_long ? L2Policy::normal : L2Policy::evict_first;
  }
  __device__ int lane_piece() const { return thread_ % kConfig.row_lanes(); }
  __device__ int key_group() const { return thread_ / kConfig.row_lanes(); }
  __device__ int group_row() const { return key_group() * kConfig.lane_keys(); }

  __device__ DecodeItem describe(const SequenceWork& work, const WorkPiece& piece,
                                 int sequence) const {
    const DecodeBatch& batch = params_.batch;
    const int cached = first_position(batch, sequence, work);
    const int line = params_.lines.line(static_cast<int>(blockIdx.x));
    const int skipped = piece.tile * batch.tile_tokens;
    const int tokens = min(work.tokens - skipped, batch.tile_tokens);
    const int position = cached + skipped;
    const KeyInterval first = batch.visible.of(position, work.num_keys);
    const KeyInterval last = batch.visible.of(position + tokens - 1, work.num_keys);
    return {.begin = work.first_block + piece.begin,
            .end = work.first_block + piece.end,
            .whole_begin = (last.first + kBlockKeys - 1) / kBlockKeys,
            .whole_end = whole_end(cached, first) / kBlockKeys,
            .first_key = first.first,
            .last_key = last.end,
            .num_keys = work.num_keys,
            .first_token = work.first_token + skipped,
            .position = position,
            .cached = cached,
            .rows = tokens * batch.group,
            .kv_head = params_.lines.kv_head(line, piece.kv_head),
            .slot = piece.slot < 0 ? -1 : piece.slot + params_.lines.first_slot(line)};
  }

  // One past the keys that all rows see, if the first row sees up to `first`.
  __device__ int whole_end(int cached, const KeyInterval& first) const {
    if (params_.intervals.are_given()) return 0;
    return params_.tree.bits == nullptr ? first.end : min(first.end, cached);
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
    constexpr int kRowPieces = 8 * kConfig.query_swizzle_columns();
    const DecodeQueries& queries = params_.queries;
    shared_.item_ring.wait_empty(items_at_);
#pragma unroll
    for (int i = thread_; i < kConfig.rows * kRowPieces; i += DecodeConfig::kLoadThreads) {
      const int row = i / kRowPieces;
      const int piece = i % kRowPieces;
      const int skipped = static_cast<int>(queries.group.quotient(static_cast<unsigned>(row)));
      const int token = item.first_token + skipped;
      const int head = (item.kv_head - skipped) * params_.batch.group + row;
      const bool is_there = row < item.rows && piece * 16 < queries.row_bytes;
      copy_async(&shared_.queries[items_at_.stage][piece / 8][row * 128 + ((piece ^ row) % 8) * 16],
                 queries.data + token * queries.token_stride_bytes +
                     head * queries.head_stride_bytes + piece * 16,
                 is_there, L2Policy::normal);
    }
    announce(item);
  }

  __device__ const std::byte* source_of(const DecodeItem& item, const PageSlot& slot) const {
    const PagedOperand& kv = params_.kv;
    return kv.keys + slot.page * kv.page_stride_bytes + slot.row * kv.token_stride_bytes +
           item.kv_head * kv.head_stride_bytes + lane_piece() * 16;
  }

  __device__ void load_item(const DecodeItem& item, int sequence) {
    const PageCursor pages = PageCursor::from_first_row(params_.kv.pages, sequence);
    int key = item.begin * kBlockKeys + group_row();
    PageSlot slot = pages.find(key, item.last_key);
    load_queries(item);
    for (int block = item.begin; block < item.end; ++block, at_.advance()) {
      // On its way while this block waits for its stage.
      const PageSlot next = pages.find(key + kBlockKeys, item.last_key);
      shared_.ring.wait_empty(at_);
      finish_stage(is_run(item, key, slot) ? load_run(source_of(item, slot))
                                           : load_each(item, pages, key, slot));
      key += kBlockKeys;
      slot = next;
    }
  }

  // This lane's neighbouring keys lie behind each other in a page, and all of them are seen.
  __device__ bool is_run(const DecodeItem& item, int key, const PageSlot& slot) const {
    constexpr int kLaneKeys = kConfig.lane_keys();
    const PageTable& pages = params_.kv.pages;
    return slot.page < pages.num_pages() && slot.row + kLaneKeys <= pages.page_size() &&
           key >= item.first_key && key + kLaneKeys <= item.last_key &&
           lane_piece() * 16 < params_.kv.row_bytes;
  }

  // K and V of this lane's keys; a bit for each whose page is assigned. An instruction or two beside
  // every copy: with the addresses of `load_each`, four warps were too slow for e4m3.
  __device__ unsigned load_run(const std::byte* source) {
    constexpr unsigned kAllMapped = (1U << kConfig.lane_keys()) - 1;
    if (lane_piece() >= 8 * kConfig.swizzle_columns) return kAllMapped;
#pragma unroll
    for (int i = 0; i < kConfig.lane_keys(); ++i) {
      std::byte* row = target_row(i);
      copy_async(row, source, policy_);
      copy_async(row + kConfig.side_bytes(), source + params_.kv.value_offset_bytes, policy_);
      source += params_.kv.token_stride_bytes;
    }
    return kAllMapped;
  }

  // The same, key by key, `slot` being that of the first: what is not seen or has no page is zero.
  __device__ unsigned load_each(const DecodeItem& item, const PageCursor& pages, int key,
                                PageSlot slot) {
    const PagedOperand& kv = params_.kv;
    unsigned mapped = 0;
#pragma unroll 1
    for (int i = 0; i < kConfig.lane_keys(); ++i, ++key, ++slot.row) {
      if (slot.row == kv.pages.page_size()) slot = pages.find(key, item.last_key);
      const bool is_mapped = pages.is_mapped(slot);
      const bool is_seen = key >= item.first_key && key < item.last_key;
      const bool is_there = is_mapped && is_seen && lane_piece() * 16 < kv.row_bytes;
      mapped |= is_mapped ? 1U << i : 0U;
      if (lane_piece() >= 8 * kConfig.swizzle_columns) continue;
      const std::byte* source = source_of(item, slot);
      copy_async(target_row(i), source, is_there, policy_);
      copy_async(target_row(i) + kConfig.side_bytes(), source + kv.value_offset_bytes, is_there,
                 policy_);
    }
    return mapped;
  }

  // Where key i of this lane goes.
  __device__ std::byte* target_row(int i) {
    const int row = group_row() + i;
    return shared_.keys(at_.stage) + lane_piece() / 8 * (kBlockKeys * 128) + row * 128 +
           ((lane_piece() ^ row) % 8) * 16;
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

}  // namespace quire::cuda::sm90::flash_attention
