// SPDX-License-Identifier: Apache-2.0
// Four warps: walk the work, and keep the ring full of keys and values across the borders of work tiles.
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
    WorkScan scan(params_.batch, params_.schedule, shared_.work_scan, thread_);
    const WorkCuts cuts = cut_work(params_.schedule, scan.add_up());
    const int part = params_.work_lists.part(static_cast<int>(blockIdx.x));
    policy_ = policy_of(cuts.total << params_.work_lists.bits);
    if (part < cuts.parts && cuts.total > 0) load_part(cuts, scan.find(cuts.at(part)), part);
    shared_.work_tile_ring.wait_empty(work_tiles_at_);
    announce({});
    if (params_.splits.marks == nullptr) return;
    join_splits<kConfig>(params_, cuts, shared_.work_scan.place, part, thread_ / 32);
  }

 private:
  static constexpr int kBlockStages = kBlockKeys / kConfig.keys();

  __device__ void load_part(const WorkCuts& cuts, const WorkPlace& place, int part) {
    WorkWalk walk(params_.batch, params_.schedule, cuts, place, part);
    for (WorkSplit split; walk.next(split); work_tiles_at_.advance()) {
      load_work_tile(describe(walk.work(), split, walk.sequence()), walk.sequence());
    }
  }

  // Streamed keys push dirty lines out of L2, whose writing back they then wait for: 3 µs of 50 to 80 less
  // if they take their own places first. For many bytes it is the other way round: 6 µs of 140.
  __device__ static L2Policy policy_of(int blocks) {
    constexpr std::int64_t kManyBytes = std::int64_t{240} << 20;
    const bool is_long = std::int64_t{blocks} * kBlockStages * kConfig.stage_bytes() > kManyBytes;
    return is_long ? L2Policy::normal : L2Policy::evict_first;
  }
  __device__ int lane_chunk() const { return thread_ % kConfig.row_lanes(); }
  __device__ int key_group() const { return thread_ / kConfig.row_lanes(); }
  __device__ int group_row() const { return key_group() * kConfig.lane_keys(); }

  __device__ DecodeWorkTile describe(const SequenceWork& work, const WorkSplit& split,
                                     int sequence) const {
    const DecodeBatch& batch = params_.batch;
    const int cached = first_position(batch, sequence, work);
    const int list = params_.work_lists.list(static_cast<int>(blockIdx.x));
    const int skipped = split.tile * batch.tile_tokens;
    const int tokens = min(work.tokens - skipped, batch.tile_tokens);
    const int position = cached + skipped;
    const KeyInterval first = batch.visible.of(position, work.num_keys);
    const KeyInterval last = batch.visible.of(position + tokens - 1, work.num_keys);
    return {.begin = work.first_block + split.begin,
            .end = work.first_block + split.end,
            .whole_begin = (last.first + kBlockKeys - 1) / kBlockKeys,
            .whole_end = whole_end(cached, first) / kBlockKeys,
            .first_key = first.first,
            .last_key = last.end,
            .num_keys = work.num_keys,
            .first_token = params_.listed.token(work.first_token) + skipped,
            .position = position,
            .cached = cached,
            .rows = tokens * batch.group,
            .kv_head = params_.listed.kv_head(work.first_token,
                                              params_.work_lists.kv_head(list, split.kv_head)),
            .slot = split.slot < 0 ? -1 : split.slot + params_.work_lists.first_slot(list)};
  }

  // One past the keys that all rows see, if the first row sees up to `first`.
  __device__ int whole_end(int cached, const KeyInterval& first) const {
    if (params_.intervals.are_given()) return 0;
    return params_.tree.bits == nullptr ? first.end : min(first.end, cached);
  }

  // Arrivals of a thread: when its copies so far have landed, and for `work_tile` itself.
  __device__ void announce(const DecodeWorkTile& work_tile) {
    FullBarrier& full = shared_.work_tile_ring.full[work_tiles_at_.stage];
    cutlass::arch::cpasync_barrier_arrive_noinc(reinterpret_cast<std::uint64_t*>(&full));
    if (thread_ != 0) return;
    shared_.work_tile[work_tiles_at_.stage] = work_tile;
    full.arrive();
  }

  __device__ void load_queries(const DecodeWorkTile& work_tile) {
    constexpr int kRowChunks = 8 * kConfig.query_swizzle_columns();
    constexpr int kCopies = ceil_div(kConfig.rows * kRowChunks, DecodeConfig::kLoadThreads);
    constexpr int kAtOnce = kCopies < 8 ? kCopies : 8;  // addresses of more would be spilled
    const DecodeQueries& queries = params_.queries;
    shared_.work_tile_ring.wait_empty(work_tiles_at_);
#pragma unroll kAtOnce
    for (int i = thread_; i < kConfig.rows * kRowChunks; i += DecodeConfig::kLoadThreads) {
      const int row = i / kRowChunks;
      const int chunk = i % kRowChunks;
      const int skipped = static_cast<int>(queries.group.quotient(static_cast<unsigned>(row)));
      const int token = work_tile.first_token + skipped;
      const int head = (work_tile.kv_head - skipped) * params_.batch.group + row;
      const bool is_there = row < work_tile.rows && chunk * 16 < queries.row_bytes;
      copy_async(
          &shared_.queries[work_tiles_at_.stage][chunk / 8][row * 128 + ((chunk ^ row) % 8) * 16],
          queries.data + token * queries.token_stride_bytes + head * queries.head_stride_bytes +
              chunk * 16,
          is_there, L2Policy::normal);
    }
    announce(work_tile);
  }

  __device__ const std::byte* source_of(const DecodeWorkTile& work_tile,
                                        const PageSlot& slot) const {
    const PagedOperand& kv = params_.kv;
    return kv.keys + slot.page * kv.page_stride_bytes + slot.row * kv.token_stride_bytes +
           work_tile.kv_head * kv.head_stride_bytes + lane_chunk() * 16;
  }

  __device__ void load_work_tile(const DecodeWorkTile& work_tile, int sequence) {
    const PageCursor pages = PageCursor::from_first_row(params_.kv.pages, sequence);
    int key = work_tile.begin * kBlockKeys + group_row();
    PageSlot slot = pages.find(key, work_tile.last_key);
    load_queries(work_tile);
    const int stages = (work_tile.end - work_tile.begin) * kBlockStages;
    for (int i = 0; i < stages; ++i, at_.advance()) {
      // On its way while these keys wait for their stage.
      const PageSlot next = pages.find(key + kConfig.keys(), work_tile.last_key);
      shared_.ring.wait_empty(at_);
      finish_stage(is_run(work_tile, key, slot) ? load_run(source_of(work_tile, slot))
                                                : load_each(work_tile, pages, key, slot));
      key += kConfig.keys();
      slot = next;
    }
  }

  // This lane's neighbouring keys lie behind each other in a page, and all of them are seen.
  __device__ bool is_run(const DecodeWorkTile& work_tile, int key, const PageSlot& slot) const {
    constexpr int kLaneKeys = kConfig.lane_keys();
    const PageTable& pages = params_.kv.pages;
    return slot.page < pages.num_pages() && slot.row + kLaneKeys <= pages.page_size() &&
           key >= work_tile.first_key && key + kLaneKeys <= work_tile.last_key &&
           lane_chunk() * 16 < params_.kv.row_bytes;
  }

  // K and V of this lane's keys; a bit for each whose page is assigned. An instruction or two beside
  // every copy: with the addresses of `load_each`, four warps were too slow for e4m3.
  __device__ unsigned load_run(const std::byte* source) {
    constexpr unsigned kAllMapped = (1U << kConfig.lane_keys()) - 1;
    if (lane_chunk() >= 8 * kConfig.swizzle_columns) return kAllMapped;
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
  __device__ unsigned load_each(const DecodeWorkTile& work_tile, const PageCursor& pages, int key,
                                PageSlot slot) {
    const PagedOperand& kv = params_.kv;
    unsigned mapped = 0;
#pragma unroll 1
    for (int i = 0; i < kConfig.lane_keys(); ++i, ++key, ++slot.row) {
      if (slot.row == kv.pages.page_size()) slot = pages.find(key, work_tile.last_key);
      const bool is_mapped = pages.is_mapped(slot);
      const bool is_seen = key >= work_tile.first_key && key < work_tile.last_key;
      const bool is_there = is_mapped && is_seen && lane_chunk() * 16 < kv.row_bytes;
      mapped |= is_mapped ? 1U << i : 0U;
      if (lane_chunk() >= 8 * kConfig.swizzle_columns) continue;
      const std::byte* source = source_of(work_tile, slot);
      copy_async(target_row(i), source, is_there, policy_);
      copy_async(target_row(i) + kConfig.side_bytes(), source + kv.value_offset_bytes, is_there,
                 policy_);
    }
    return mapped;
  }

  // Where key i of this lane goes.
  __device__ std::byte* target_row(int i) {
    const int row = group_row() + i;
    return shared_.keys(at_.stage) + lane_chunk() / 8 * (kConfig.keys() * 128) + row * 128 +
           ((lane_chunk() ^ row) % 8) * 16;
  }

  __device__ void finish_stage(unsigned mapped) {
    FullBarrier& full = shared_.ring.full[at_.stage];
    cutlass::arch::cpasync_barrier_arrive_noinc(reinterpret_cast<std::uint64_t*>(&full));
    if (lane_chunk() != 0) return;
    shared_.mapped[at_.stage][key_group()] = static_cast<std::uint16_t>(mapped);
    full.arrive();
  }

  const DecodeParams& params_;
  DecodeShared<kConfig>& shared_;
  int thread_;
  L2Policy policy_ = L2Policy::evict_first;
  RingPosition<kConfig.work_tiles> work_tiles_at_;
  RingPosition<kConfig.stages> at_;
};

}  // namespace quire::cuda::sm90::flash_attention
