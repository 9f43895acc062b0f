// SPDX-License-Identifier: Apache-2.0
// Attention of many query rows at a time over the pages.
#pragma once

#include <type_traits>

#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/pipeline/tma.cuh"
#include "cuda/common/prefill_attention/roles/attend_columns.cuh"
#include "cuda/common/prefill_attention/run_roles.cuh"
#include "cuda/common/prefill_attention/shared.cuh"
#include "cuda/sm90/flash_attention/prefill/launch_prefill.h"

namespace quire::cuda::sm90::flash_attention {

// Blocks of keys and values out of the pages. A block is copied as boxes, 64 columns of a part
// that stays within a page, one per lane of the two warps that load it: lanes take turns at
// issuing, so small pages come late unless there are few on each warp.
//
// What the load role (roles/load.cuh) asks of a source; another one has its own Params and its own
// kernel, the other roles stay:
//
//   Source(params, half)                 by every lane of a loading warp, the first or the second
//   prefetch(params)                     its tensor maps, by one thread
//   BlockPart find(tile, block)              must not wait for what it reads; block may be -1
//   holes(part)                         bit g: keys 8g … 8g + 7 of the block are not there
//   load_keys(part, stage, full)        this warp's half of key_swizzle_columns() swizzle columns of block_keys rows,
//   load_values(part, stage, full)      of value_swizzle_columns(); all of their bytes arrive on `full`
//
// Rows behind the sequence's end may hold anything, also NaN: the consumers take care of them.

template <PrefillConfig kConfig> class PagedSource {
 public:
  using Params = PagedKeys;

  // Where this lane's part of a block stands.
  struct BlockPart {
    PageSlot slot;
    int kv_head;
    bool is_needed;  // begins before the sequence's end
  };

  __device__ PagedSource(const PagedKeys& params, int half)
      : params_(params), half_(half), parts_(kConfig.block_keys / params.box_rows) {}

  __device__ static void prefetch(const PagedKeys& params) {
    cuda::prefetch(params.keys);
    cuda::prefetch(params.values);
  }

  __device__ BlockPart find(const PrefillTile& tile, int block) const {
    const int key = block * kConfig.block_keys + lane() % parts_ * params_.box_rows;
    return {.slot = cursor_of(tile.sequence).find_by_division(key, tile.end_key),
            .kv_head = tile.kv_head,
            .is_needed = key >= 0 && key < tile.end_key};
  }

  __device__ std::uint32_t holes(const BlockPart& part) const {
    const bool is_hole = part.is_needed && part.slot.page >= num_pages();
    const unsigned missing = __ballot_sync(0xffffffff, is_hole && lane() < parts_);
    return missing == 0 ? 0 : hole_bits(missing);
  }

  __device__ void load_keys(const BlockPart& part, std::byte* stage, FullBarrier& full) const {
    load<kConfig.copied_key_swizzle_columns(), kConfig.key_swizzle_columns()>(params_.keys, part,
                                                                              stage, full);
  }
  __device__ void load_values(const BlockPart& part, std::byte* stage, FullBarrier& full) const {
    load<kConfig.copied_value_swizzle_columns(), kConfig.value_swizzle_columns()>(
        params_.values, part, stage, full);
  }

 private:
  __device__ PageCursor cursor_of(int sequence) const {
    if constexpr (kConfig.has_fp8_products()) {
      return PageCursor(params_.pages, sequence);
    } else {
      return PageCursor::from_first_row(params_.pages, sequence);
    }
  }
  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ unsigned num_pages() const { return params_.pages.num_pages(); }
  __device__ std::uint32_t hole_bits(unsigned missing) const {
    const int groups = params_.box_rows / 8;
    const std::uint32_t part_bits = (1U << groups) - 1;
    std::uint32_t bits = 0;
    for (int part = 0; part < parts_; ++part) {
      if ((missing >> part & 1) != 0) bits |= part_bits << (part * groups);
    }
    return bits;
  }
  // A page that is not there lies outside the map: the copy writes zeros, and the bytes to wait for
  // are always the same.
  template <int kCopied, int kSwizzleColumns>
  __device__ void load(const TensorMap& map, const BlockPart& part, std::byte* stage,
                       FullBarrier& full) const {
    static_assert(kCopied * (kConfig.block_keys / 8) <= 64, "a lane for each box");
    // Of a cluster, each CTA brings every so many boxes to all of them. Found anew every time: kept, it is a register
    // more than the lead warp has.
    constexpr int kCluster = kConfig.cluster;
    const int lane_here = kCluster == 1 ? lane() : opaque(static_cast<int>(threadIdx.x)) % 32;
    const int box = 2 * (kCluster * lane_here + rank_in_cluster<kCluster>()) + half_;
    const int at = box / kCopied;
    const int swizzle_column = box % kCopied;
    const unsigned page = __shfl_sync(0xffffffff, part.slot.page, at);
    const int row = __shfl_sync(0xffffffff, part.slot.row, at);
    if (at < parts_) {
      const BoxLoad load{
          .map = &map,
          .shared = stage +
                    kConfig.copied_swizzle_column(swizzle_column, kCopied, kSwizzleColumns) *
                        PrefillShared<kConfig>::kSwizzleColumnBytes +
                    at * params_.box_rows * kRowBytes,
          .full = &full,
          .hint = L2Hint::EVICT_LAST};
      const auto plane = static_cast<int>(page < num_pages() ? page : num_pages());
      if constexpr (kCluster == 1) {
        load_box(load, swizzle_column * kConfig.copied_columns(), row, part.kv_head, plane);
      } else {
        constexpr std::uint16_t kEveryBlock = (1 << kCluster) - 1;
        load_box_for(load, swizzle_column * kConfig.copied_columns(), row, part.kv_head, plane,
                     kEveryBlock);
      }
    }
    __syncwarp();
  }

  const PagedKeys& params_;
  const int half_;
  const int parts_;  // of a block, at most 16
};

// Warpgroups with rows of their own, or that share them.
template <PrefillConfig kConfig>
using PrefillConsumer =
    std::conditional_t<(kConfig.column_groups > 1), AttendColumns<kConfig>, PrefillAttend<kConfig>>;

template <typename Variant>
__global__ void __launch_bounds__(Variant::kConfig.threads(), 1)
    prefill_kernel(const __grid_constant__ PrefillParams params,
                   const __grid_constant__ PagedKeys keys) {
  constexpr PrefillConfig kConfig = Variant::kConfig;
  run_roles<kConfig, PagedSource<kConfig>, PrefillConsumer<kConfig>>(params, keys);
}

template <typename Variant>
void launch_prefill(const PrefillParams& params, const PagedKeys& keys,
                    const PrefillLaunch& where) {
  launch(prefill_kernel<Variant>, prefill_shape<Variant::kConfig>(where), where.stream, params,
         keys);
}

}  // namespace quire::cuda::sm90::flash_attention
