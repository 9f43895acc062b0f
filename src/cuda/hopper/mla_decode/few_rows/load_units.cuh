// SPDX-License-Identifier: Apache-2.0
// Four warps: walk the block's part of the work and have the copy engine bring 16 rows of every tile
// each, as the cache has them: row by row, or all at once where they stand as close as here. Rows that
// are not the sequence's, or on no page, are not brought.
#pragma once

#include "cuda/hopper/flash_attention/decode/find_work.cuh"
#include "cuda/hopper/latent_attention/load_queries.cuh"
#include "cuda/hopper/mla_decode/few_rows/shared.cuh"
#include "cuda/hopper/mla_decode/params.h"
#include "cuda/hopper/mla_decode/roles/describe_item.cuh"
#include "cuda/hopper/mla_decode/touch_lengths.cuh"
#include "cuda/hopper/tile/bulk_copy.cuh"

namespace quire::cuda::hopper {

template <FewRowsConfig kConfig> class LoadUnits {
 public:
  // `warp`: of the four.
  __device__ LoadUnits(const MlaDecodeParams& params, FewRowsShared<kConfig>& shared, int warp)
      : params_(params), shared_(shared), warp_(warp) {}

  __device__ void run() {
    touch_lengths(params_.batch);
    WorkWalk walk = start_walk(params_, cut_batch(params_), static_cast<int>(blockIdx.x));
    for (WorkPiece piece; walk.next(piece);) {
      const SequenceWork& work = walk.work();
      const LatentItem item = describe_item(params_.batch, work, piece);
      if (warp_ == 0 && lane() < kConfig.rows) prefetch_query(params_.attend, item, lane());
      publish(item);
      load_item(work, piece, walk.sequence());
    }
    publish({});
  }

 private:
  static constexpr int kKeys = FewRowsConfig::kUnitKeys;

  // Where 16 keys of a page stand.
  struct Found {
    int live = 0;  // the first ones are the sequence's and on a page
    std::int64_t offset_bytes = 0;
    std::int64_t scales = -1;  // index of the first; -1: none
  };

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }

  __device__ void publish(const LatentItem& item) {
    if (warp_ == 0 && lane() == 0) {
      shared_.item_ring.wait_empty(item_at_);
      shared_.items[item_at_.stage] = item;
      shared_.item_ring.full[item_at_.stage].arrive();
    }
    __syncwarp();
    item_at_.advance();
  }

  // Keys from `key` on, of which `count` are the sequence's.
  __device__ Found find(int sequence, int key, int count) const {
    const LatentPages& pages = params_.pages;
    const LatentRowFormat& format = params_.format;
    const int column = key / pages.page_size;
    const int row = key - column * pages.page_size;
    Found found;
    if (count <= 0 || column >= pages.max_pages) return found;
    const unsigned page = pages.table[sequence * pages.table_stride + column];
    if (kConfig.is_fp8() && format.token_scales != nullptr) {
      const unsigned scale_page = format.scale_table[sequence * format.scale_table_stride + column];
      if (scale_page < format.scale_pages) {
        found.scales = scale_page * format.scale_page_stride + row * format.scale_token_stride;
      }
    }
    if (page >= pages.num_pages) return found;
    found.live = min(count, kKeys);
    found.offset_bytes = page * pages.page_stride_bytes + row * pages.token_stride_bytes;
    return found;
  }

  // Tables are looked up a tile ahead.
  __device__ void load_item(const SequenceWork& work, const WorkPiece& piece, int sequence) {
    const int end = work.num_keys();
    int key = (work.first_block + piece.begin) * kBlockKeys + warp_ * kKeys;
    Found now = find(sequence, key, end - key);
    for (int tile = piece.begin; tile < piece.end; ++tile, ++tile_) {
      key += kBlockKeys;
      const Found next = find(sequence, key, end - key);
      load_unit(now);
      now = next;
    }
  }

  __device__ void load_unit(const Found& found) {
    const UnitPlace<kConfig> at(tile_, warp_);
    const int row_bytes = params_.pages.row_bytes;
    const bool is_close = kConfig.pitch() == row_bytes &&
                          params_.pages.token_stride_bytes == kConfig.pitch();
    shared_.empty[at.place].wait(at.phase ^ 1);
    if (lane() == 0) {
      shared_.live[at.place] = found.live;
      shared_.full[at.place].arrive_and_expect_tx(found.live * row_bytes);
    }
    __syncwarp();
    const int copies = is_close ? min(found.live, 1) : found.live;
    if (lane() < copies) {
      load_bytes({.from = params_.pages.rows + found.offset_bytes +
                          lane() * params_.pages.token_stride_bytes,
                  .shared = shared_.units[at.place][lane()],
                  .bytes = is_close ? found.live * row_bytes : row_bytes,
                  .full = &shared_.full[at.place],
                  .hint = L2Hint::EVICT_FIRST});
    }
    if (kConfig.is_fp8() && params_.format.token_scales != nullptr) copy_scales(found, at.place);
    __syncwarp();
  }

  // Zeros, where there are none.
  __device__ void copy_scales(const Found& found, int place) const {
    if (lane() < kKeys) {
      const bool is_there = found.scales >= 0 && lane() < found.live;
      const float* source = params_.format.token_scales;
      if (is_there) source += found.scales + lane() * params_.format.scale_token_stride;
      auto target =
          static_cast<std::uint32_t>(__cvta_generic_to_shared(&shared_.scales[place][lane()]));
      asm volatile("" : "+r"(target));  // as in copy_query (load_queries.cuh)
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(target), "l"(source),
                   "r"(is_there ? 4 : 0)
                   : "memory");
    }
    cutlass::arch::cpasync_barrier_arrive_noinc(
        reinterpret_cast<std::uint64_t*>(&shared_.full[place]));
  }

  const MlaDecodeParams& params_;
  FewRowsShared<kConfig>& shared_;
  const int warp_;
  int tile_ = 0;
  RingPosition<FewRowsConfig::kItems> item_at_;
};

}  // namespace quire::cuda::hopper
