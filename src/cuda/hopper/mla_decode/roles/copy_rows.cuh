// SPDX-License-Identifier: Apache-2.0
// Four warps: walk the cluster's part of the work, and keep the ring full of this block's half of the
// rows across the borders of items. Rows are copied 16 bytes a lane: from HBM that is faster than
// boxes of the copy engine (4.3 against 4.0 TB/s).
#pragma once

#include "cuda/hopper/flash_attention/decode/async_copy.cuh"
#include "cuda/hopper/mla_decode/roles/publish_items.cuh"

namespace quire::cuda::hopper {

template <LatentConfig kConfig> class CopyRows {
 public:
  __device__ CopyRows(const MlaDecodeParams& params, LatentShared<kConfig>& shared, int rank)
      : params_(params),
        shared_(shared),
        rank_(rank),
        thread_(static_cast<int>(threadIdx.x) - LatentConfig::kThreads),
        items_(shared, thread_ == 0) {}

  // `cluster`: whose part.
  __device__ void run(int cluster) {
    WorkWalk walk = start_walk(params_, cut_batch(params_), cluster);
    for (WorkPiece piece; walk.next(piece);) {
      const SequenceWork& work = walk.work();
      items_.publish(describe_item(params_.batch, work, piece));
      load_tiles(work, piece, walk.sequence());
    }
    items_.publish({});
  }

 private:
  __device__ int lane() const { return thread_ % 32; }
  __device__ int warp() const { return thread_ / 32; }

  // Where a run of 16 keys begins; null: it has no page.
  __device__ const std::byte* find(const std::uint32_t* table, int key, int end) const {
    const LatentPages& pages = params_.pages;
    const int column = key / pages.page_size;
    if (key >= end || column >= pages.max_pages) return nullptr;
    const unsigned page = table[column];
    if (page >= pages.num_pages) return nullptr;
    return pages.rows + page * pages.page_stride_bytes +
           (key - column * pages.page_size) * pages.token_stride_bytes;
  }

  __device__ void load_tiles(const SequenceWork& work, const WorkPiece& piece, int sequence) {
    const std::uint32_t* table = params_.pages.table + sequence * params_.pages.table_stride;
    const int end = work.num_keys();
    int key = (work.first_block + piece.begin) * kBlockKeys + warp() * LatentConfig::kWarpKeys;
    const std::byte* rows = find(table, key, end);
    for (int tile = piece.begin; tile < piece.end; ++tile, at_.advance()) {
      const std::byte* next = find(table, key + kBlockKeys, end);
      shared_.ring.wait_empty(at_);
      copy_rows(rows, end - key);
      arrive(rows != nullptr);
      key += kBlockKeys;
      rows = next;
    }
  }

  // 16 rows, of which the first `count` are the sequence's.
  __device__ void copy_rows(const std::byte* rows, int count) {
    constexpr int kKeys = LatentConfig::kWarpKeys;
    LatentStage& stage = shared_.stages[at_.stage];
    const std::int64_t stride = params_.pages.token_stride_bytes;
    const int live = rows != nullptr ? count : 0;
    const int first = warp() * kKeys;
    const std::byte* source = rows + rank_ * LatentConfig::kColumns * 2 + lane() * 16;
#pragma unroll 4
    for (int row = 0; row < kKeys; ++row) {
      copy_async(&stage.slabs[lane() / 8][slab_offset(first + row, lane())], source, row < live,
                 L2Policy::evict_first);
      source += stride;
    }
    const std::byte* tails =
        rows + LatentConfig::kLatent * 2 + rank_ * LatentConfig::kTailBytes + lane() % 4 * 16;
#pragma unroll
    for (int row = lane() / 4; row < kKeys; row += 8) {
      copy_async(&stage.tail[tail_offset(first + row, lane() % 4)], tails + row * stride,
                 row < live, L2Policy::evict_first);
    }
  }

  __device__ void arrive(bool is_mapped) {
    FullBarrier& full = shared_.ring.full[at_.stage];
    cutlass::arch::cpasync_barrier_arrive_noinc(reinterpret_cast<std::uint64_t*>(&full));
    if (lane() == 0) {
      shared_.valid[at_.stage][warp()] = is_mapped ? 0xffff : 0;
      full.arrive();
    }
    __syncwarp();
  }

  const MlaDecodeParams& params_;
  LatentShared<kConfig>& shared_;
  const int rank_;
  const int thread_;
  PublishItems<kConfig> items_;
  RingPosition<kConfig.stages> at_;
};

}  // namespace quire::cuda::hopper
