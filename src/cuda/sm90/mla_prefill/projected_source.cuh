// SPDX-License-Identifier: Apache-2.0
// A source of keys for the prefill kernel (flash_attention/prefill/kernel.cuh says what that
// is): K is 128 projected columns of the head and 64 rope columns that all heads share, V 128
// projected columns. Keys of a sequence are neighbours in the buffer, whatever their pages: a block
// of K is three boxes, one of V two.
#pragma once

#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/pipeline/tma.cuh"
#include "cuda/common/prefill_attention/fp8/attend_fp8.cuh"
#include "cuda/common/prefill_attention/run_roles.cuh"
#include "cuda/common/prefill_attention/shared.cuh"
#include "cuda/sm90/mla_prefill/params.h"

namespace quire::cuda::sm90::mla_prefill {

template <PrefillConfig kConfig> class ProjectedSource {
 public:
  using Params = ProjectedKeys;

  static constexpr int kNope = 128;  // columns of a head's K in front of its V
  static constexpr int kNopeSwizzleColumns = kNope / PrefillConfig::kSwizzleColumnWidth;
  static_assert(kConfig.head_dim == kNope + PrefillConfig::kSwizzleColumnWidth);

  // Lane g: keys 8g … 8g + 7 of the block.
  struct BlockPart {
    PageSlot slot;  // that the keys came from
    int row;        // of the buffer, the block's first
    int head;
    bool is_needed;  // begins before the end of the chunk's keys
  };

  __device__ ProjectedSource(const ProjectedKeys& params, int half)
      : params_(params), box_(2 * lane() + half) {}

  __device__ static void prefetch(const ProjectedKeys& params) {
    cuda::prefetch(params.projected);
    cuda::prefetch(params.rope);
  }

  // Nothing here waits for the page table's answer, nor for the buffer row.
  __device__ BlockPart find(const PrefillTile& tile, int block) const {
    const int within = block * kConfig.block_keys;
    const int key = tile.first_key + within + 8 * lane();
    const bool is_needed = block >= 0 && lane() < kGroups && key < tile.end_key;
    return {
        .slot = PageCursor(params_.pages, tile.sequence).find(key, is_needed ? tile.end_key : 0),
        .row = static_cast<int>(params_.buffer_rows[tile.sequence]) + within,
        .head = tile.kv_head,
        .is_needed = is_needed};
  }

  __device__ std::uint32_t holes(const BlockPart& part) const {
    const bool is_hole = part.is_needed && part.slot.page >= params_.pages.num_pages();
    return __ballot_sync(0xffffffff, is_hole);
  }

  __device__ void load_keys(const BlockPart& part, std::byte* stage, FullBarrier& full) const {
    if (box_ < kNopeSwizzleColumns) {
      load_projected(part, box_ * PrefillConfig::kSwizzleColumnWidth, stage, full);
    } else if (box_ == kNopeSwizzleColumns) {
      load_box(box_load(params_.rope, stage, full), 0, 0, part.row);
    }
    __syncwarp();
  }
  __device__ void load_values(const BlockPart& part, std::byte* stage, FullBarrier& full) const {
    if (box_ < kConfig.value_swizzle_columns()) {
      load_projected(part, kNope + box_ * PrefillConfig::kSwizzleColumnWidth, stage, full);
    }
    __syncwarp();
  }

 private:
  static constexpr int kGroups = kConfig.block_keys / 8;
  static_assert(kGroups <= 32);

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ BoxLoad box_load(const TensorMap& map, std::byte* stage, FullBarrier& full) const {
    return {.map = &map,
            .shared = stage + box_ * PrefillShared<kConfig>::kSwizzleColumnBytes,
            .full = &full,
            .hint = L2Hint::EVICT_LAST};
  }
  // Rows behind the buffer's end lie outside the map and come as zeros: the bytes to wait for are
  // always the same.
  __device__ void load_projected(const BlockPart& part, int column, std::byte* stage,
                                 FullBarrier& full) const {
    load_box(box_load(params_.projected, stage, full), column, part.head, part.row);
  }

  const ProjectedKeys& params_;
  const int box_;  // of a block that this lane loads, if there are so many
};

// The prefill kernel over a chunk's up-projected keys.

template <typename Variant>
__global__ void __launch_bounds__(Variant::kConfig.threads(), 1)
    projected_kernel(const __grid_constant__ PrefillParams params,
                     const __grid_constant__ ProjectedKeys keys) {
  run_roles<Variant::kConfig, ProjectedSource<Variant::kConfig>>(params, keys);
}

template <typename Variant>
void launch_projected(const PrefillParams& params, const ProjectedKeys& keys,
                      const PrefillLaunch& where) {
  LaunchShape shape = prefill_shape<Variant::kConfig>(where);
  shape.overlaps_previous = true;
  launch(projected_kernel<Variant>, shape, where.stream, params, keys);
}

// A source of keys for the prefill kernel with products of e4m3 (what it offers stands at the head of
// flash_attention/prefill/kernel.cuh): a block of K is a box of the head's 128 columns and one
// of the 64 rope columns, behind which TMA writes zeros; one of V is one box.

template <PrefillConfig kConfig> class Fp8Source {
 public:
  using Params = ProjectedKeys;  // of e4m3
  using Rows = ProjectedSource<kConfig>;
  using BlockPart = typename Rows::BlockPart;

  __device__ Fp8Source(const ProjectedKeys& params, int half)
      : params_(params), rows_(params, half), box_(2 * static_cast<int>(threadIdx.x % 32) + half) {}

  __device__ static void prefetch(const ProjectedKeys& params) { Rows::prefetch(params); }
  __device__ BlockPart find(const PrefillTile& tile, int block) const {
    return rows_.find(tile, block);
  }
  __device__ std::uint32_t holes(const BlockPart& part) const { return rows_.holes(part); }

  __device__ void load_keys(const BlockPart& part, std::byte* stage, FullBarrier& full) const {
    if (box_ == 0) {
      load_box(box_load(params_.projected, stage, full), 0, part.head, part.row);
    } else if (box_ == 1) {
      load_box(box_load(params_.rope, stage, full), 0, 0, part.row);
    }
    __syncwarp();
  }
  __device__ void load_values(const BlockPart& part, std::byte* stage, FullBarrier& full) const {
    constexpr int kFirstColumn = 128;  // behind K's
    if (box_ == 0) {
      load_box(box_load(params_.projected, stage, full), kFirstColumn, part.head, part.row);
    }
    __syncwarp();
  }

 private:
  __device__ BoxLoad box_load(const TensorMap& map, std::byte* stage, FullBarrier& full) const {
    return {.map = &map,
            .shared = stage + box_ * PrefillShared<kConfig>::kSwizzleColumnBytes,
            .full = &full,
            .hint = L2Hint::EVICT_LAST};
  }

  const ProjectedKeys& params_;
  const Rows rows_;
  const int box_;  // of a block that this lane loads, if there are so many
};

// The prefill kernel with products of e4m3 over a chunk's up-projected keys.

template <typename Variant>
void launch_fp8_attention(const PrefillParams& params, const ProjectedKeys& keys,
                          const PrefillLaunch& where) {
  LaunchShape shape = prefill_shape<Variant::kConfig>(where);
  shape.overlaps_previous = true;
  launch(transposing_kernel<Variant, Fp8Source<Variant::kConfig>>, shape, where.stream, params,
         keys);
}

}  // namespace quire::cuda::sm90::mla_prefill
