// SPDX-License-Identifier: Apache-2.0
// One warp for each half of the columns: follows the cluster's part of the work and has TMA
// bring tiles of keys, as soon as the sums have the tile that stood there.
#pragma once

#include <cute/arch/copy_sm80.hpp>

#include "cuda/common/pipeline/tma.cuh"
#include "cuda/common/split_kv/find_work.cuh"
#include "cuda/common/split_kv/split_schedule.h"
#include "cuda/sm90/mla_decode/latent/shared.cuh"
#include "cuda/sm90/mla_decode/params.h"
#include "cuda/sm90/mla_decode/pingpong/shared.cuh"

namespace quire::cuda::sm90::mla_decode {

class LoadHalves {
 public:
  // `half`: of the columns. `tiles`: of the whole batch.
  __device__ LoadHalves(const MlaDecodeParams& params, PingpongShared& shared, int half, int rank,
                        int tiles)
      : params_(params),
        shared_(shared),
        half_(half),
        rank_(rank),
        box_bits_(params.pages.box_bits),
        splits_(Pingpong::kKeys >> box_bits_),
        is_ahead_(params.attend.splits.rows > Pingpong::kRows && splits_ == 1 && rank < 2),
        hint_(tiles < kManyTiles ? L2Hint::EVICT_FIRST : L2Hint::EVICT_NORMAL) {}

  __device__ void run(WorkWalk walk) {
    bool is_first = true;
    for (WorkSplit split; walk.next(split); is_first = false) {
      if (half_ == 1 && !is_first) {
        prefetch_queries(describe_work_tile(params_.batch, walk.work(), split, walk.sequence()));
      }
      load_work_tile(walk.work(), split, walk.sequence(), is_first);
    }
  }

 private:
  static constexpr int kBatchBoxes = 32;
  static constexpr int kTileBits = 6;
  static_assert(Pingpong::kKeys == 1 << kTileBits);

  // After 256 MiB were written, reads of less than about 240 MiB are fastest if evicted first.
  static constexpr int kManyTiles = (240 << 20) / (Pingpong::kKeys * Pingpong::kSwizzleColumns *
                                                   Pingpong::kSwizzleColumnWidth * 2);

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }

  // Into L2, two tiles before they are wanted.
  __device__ void prefetch_queries(const LatentWorkTile& work_tile) const {
    for (int row = lane(); row < Pingpong::kRows; row += 32) {
      prefetch_query(params_.attend, work_tile, rank_ * Pingpong::kRows + row);
    }
  }

  // The table is looked up 32 boxes at a time, one by each lane, and a batch ahead: one wait for memory
  // then lasts for 8 to 32 tiles.
  __device__ void load_work_tile(const SequenceWork& work, const WorkSplit& split, int sequence,
                                 bool is_first) {
    const PageCursor pages(params_.pages.kv.pages, sequence);
    const int end = work.num_keys;
    const int tiles = split.end - split.begin;
    const int batch = kBatchBoxes >> (kTileBits - box_bits_);  // tiles
    int key = (work.first_block + split.begin) * kBlockKeys + (lane() << box_bits_);
    PageSlot now = pages.find(key, end);
    PageSlot next = now;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      const int in_batch = tile & (batch - 1);
      if (in_batch == 0) {
        if (tile > 0) now = next;
        key += batch * kBlockKeys;
        if (tile + batch < tiles) next = pages.find(key, end);
      }
      if (is_first && tile == 1) await_half(0);
      load_half(tile % 2, take(now, in_batch));
      if (is_ahead_ && tile + 1 < tiles) {
        fetch_ahead(in_batch + 1 < batch ? take(now, in_batch + 1) : take(next, 0));
      }
    }
  }

  // A block's second tile is not asked for before its first has come. Both at once come together, and the
  // queries behind them: what all blocks have room for takes memory 4 µs.
  __device__ void await_half(int stage) const {
    for (int i = 0; i < 2; ++i) shared_.full[stage][2 * half_ + i].wait(0);
  }

  // This lane's split of a tile of the batch.
  __device__ PageSlot take(const PageSlot& batch, int tile) const {
    const int box = tile * splits_ + (lane() & (splits_ - 1));
    return {.page = min(__shfl_sync(kWholeWarp, batch.page, box), num_pages()),
            .row = __shfl_sync(kWholeWarp, batch.row, box)};
  }
  __device__ unsigned num_pages() const {
    return params_.pages.kv.pages.num_pages();
  }

  // Into L2, for all who share the keys: a quarter of the columns for each warp of the first two blocks. Only
  // where several share their keys: with one block for a work tile, memory is the limit, and this is in its way.
  __device__ void fetch_ahead(const PageSlot& split) const {
    if (lane() == 0 && split.page < num_pages()) {
      const auto page = static_cast<int>(split.page);
      const int swizzle_column = (2 * half_ + rank_) * Pingpong::kQuarterSwizzleColumns;
      const int rope = Pingpong::kRopeSwizzleColumn;
      cute::SM90_TMA_LOAD_4D::PREFETCH::copy(&params_.latents, 0, split.row, swizzle_column, page);
      if (half_ == 0 && rank_ == 0) {
        cute::SM90_TMA_LOAD_4D::PREFETCH::copy(&params_.tails, 0, split.row, rope, page);
      }
    }
    __syncwarp();
  }

  __device__ void load_half(int stage, const PageSlot& split) {
    const int quarter = 2 * half_;
    const bool has_rope = rope_half(stage) == half_;
    constexpr int kQuarterBytes = Pingpong::kQuarterSwizzleColumns * Pingpong::kSwizzleColumnBytes;
    shared_.empty[stage][half_].wait((phases_ >> stage & 1) ^ 1);
    phases_ ^= 1U << stage;
    if (half_ == 0) leave_valid(split, stage);
    if (lane() == 0) {
      shared_.full[stage][quarter].arrive_and_expect_tx(kQuarterBytes);
      shared_.full[stage][quarter + 1].arrive_and_expect_tx(
          kQuarterBytes + (has_rope ? Pingpong::kSwizzleColumnBytes : 0));
    }
    __syncwarp();
    if (splits_ == 1) {  // one box for two swizzle columns: asking for a box takes a hundred cycles
      if (lane() == 0) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int swizzle_column = (quarter + i) * Pingpong::kQuarterSwizzleColumns;
          load_box(box(params_.latents, stage, swizzle_column, quarter + i, 0), 0, split.row,
                   swizzle_column, static_cast<int>(split.page));
        }
        if (has_rope) load_swizzle_column(stage, Pingpong::kRopeSwizzleColumn, quarter + 1, split);
      }
    } else if (lane() < splits_) {
#pragma unroll 1
      for (int i = 0; i < Pingpong::kHalfSwizzleColumns; ++i) {
        load_swizzle_column(stage, Pingpong::kHalfSwizzleColumns * half_ + i,
                            quarter + i / Pingpong::kQuarterSwizzleColumns, split);
      }
      if (has_rope) load_swizzle_column(stage, Pingpong::kRopeSwizzleColumn, quarter + 1, split);
    }
    __syncwarp();
  }

  __device__ BoxLoad box(const TensorMap& map, int stage, int swizzle_column, int quarter,
                         int row) const {
    return {.map = &map,
            .shared = &shared_.stages[stage][swizzle_column][row * kRowBytes],
            .full = &shared_.full[stage][quarter],
            .hint = hint_};
  }

  __device__ void load_swizzle_column(int stage, int swizzle_column, int quarter,
                                      const PageSlot& split) const {
    load_box(box(params_.tails, stage, swizzle_column, quarter, lane() * params_.pages.box_rows), 0,
             split.row, swizzle_column, static_cast<int>(split.page));
  }

  // Which keys of the tile are in assigned pages. The arrival that follows hands it on.
  __device__ void leave_valid(const PageSlot& split, int stage) const {
    unsigned missing = __ballot_sync(kWholeWarp, split.page >= num_pages() && lane() < splits_);
    std::uint64_t bits = ~std::uint64_t{0};
    const int rows = params_.pages.box_rows;
    for (int i = 0; missing != 0; ++i, missing >>= 1) {
      if ((missing & 1) != 0) bits &= ~((~std::uint64_t{0} >> (64 - rows)) << (i * rows));
    }
    if (lane() == 0) shared_.valid[stage] = bits;
  }

  const MlaDecodeParams& params_;
  PingpongShared& shared_;
  const int half_;
  const int rank_;
  const int box_bits_;   // of the rows of a box
  const int splits_;     // of a tile, at most 4
  const bool is_ahead_;  // asks for the tile after
  const L2Hint hint_;
  unsigned phases_ = 0;  // of the stages' rounds
};

// A block's 64 rows of every work tile's queries into shared memory, by two warps, while the work tile before is
// at its last weights and its output.

class LoadRowsOfQ {
 public:
  // `warp`: of those who load queries.
  __device__ LoadRowsOfQ(const MlaDecodeParams& params, PingpongShared& shared, int warp, int rank)
      : params_(params), shared_(shared), warp_(warp), first_row_(rank * Pingpong::kRows) {}

  __device__ void run(WorkWalk walk) {
    for (WorkSplit split; walk.next(split);) {
      const LatentWorkTile work_tile =
          describe_work_tile(params_.batch, walk.work(), split, walk.sequence());
      if (warp_ == 0) publish(work_tile);
      load(work_tile);
    }
    if (warp_ == 0) publish({});
  }

 private:
  __device__ void publish(const LatentWorkTile& work_tile) {
    if (threadIdx.x % 32 == 0) {
      shared_.work_tile_ring.wait_empty(work_tile_at_);
      shared_.work_tiles[work_tile_at_.stage] = work_tile;
      shared_.work_tile_ring.full[work_tile_at_.stage].arrive();
    }
    __syncwarp();
    work_tile_at_.advance();
  }

  // Rows beyond the work tile's are zeros.
  __device__ void load(const LatentWorkTile& work_tile) {
    const LatentQueries& queries = params_.attend.queries;
    const auto lane = static_cast<int>(threadIdx.x % 32);
    const int place = warp_ * kWarpRows;
    // Lane l knows where the warp's row l is.
    const int own = first_row_ + place + lane;
    const int token = own / params_.attend.heads;
    const std::int64_t offset = (work_tile.first_token + token) * queries.token_stride_bytes +
                                (own - token * params_.attend.heads) * queries.head_stride_bytes;
    shared_.q_empty.wait(phase_);
    phase_ ^= 1;
#pragma unroll 2  // code that runs once is mostly waited for
    for (int i = 0; i < kWarpRows; ++i) {
      const std::byte* source = queries.data + __shfl_sync(0xffffffff, offset, i) + lane * 16;
      const bool is_there = first_row_ + place + i < work_tile.rows;
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        copy_query(&shared_.q[4 * part + lane / 8][swizzle_column_offset(place + i, lane % 8)],
                   source + part * 512, is_there);
      }
    }
#pragma unroll 2
    for (int i = 0; i < kWarpRows; i += 4) {
      const int row = i + lane / 8;
      copy_query(
          &shared_.q[Pingpong::kRopeSwizzleColumn][swizzle_column_offset(place + row, lane % 8)],
          queries.data + __shfl_sync(0xffffffff, offset, row) + LatentConfig::kLatent * 2 +
              lane % 8 * 16,
          first_row_ + place + row < work_tile.rows);
    }
    cute::cp_async_wait<0>();
    cutlass::arch::fence_view_async_shared();
    arrive_once(shared_.q_full);
  }

  static constexpr int kWarpRows = Pingpong::kRows / Pingpong::kQueryWarps;
  static_assert(kWarpRows == 32);

  const MlaDecodeParams& params_;
  PingpongShared& shared_;
  const int warp_;
  const int first_row_;
  std::uint32_t phase_ = 1;
  RingPosition<Pingpong::kWorkTiles> work_tile_at_;
};

}  // namespace quire::cuda::sm90::mla_decode
