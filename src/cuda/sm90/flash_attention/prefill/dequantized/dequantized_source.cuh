// SPDX-License-Identifier: Apache-2.0
// Blocks of keys and values out of the workspace, as soon as the warps that expand them are done:
// what the load role asks of a source stands in paged_source.cuh. One warp loads a whole block.
#pragma once

#include "cuda/common/pipeline/tma.cuh"
#include "cuda/common/prefill_attention/shared.cuh"
#include "cuda/sm90/flash_attention/prefill/dequantized/block_state.cuh"
#include "cuda/sm90/flash_attention/prefill/dequantized/dequantized_keys.h"

namespace quire::cuda::sm90::flash_attention {

template <PrefillConfig kConfig> class DequantizedSource {
 public:
  using Params = DequantizedKeys;
  static_assert(kConfig.block_keys == kDequantizedKeys);

  struct Piece {
    int place;  // of the block; behind the last one: there is none
  };

  __device__ DequantizedSource(const DequantizedKeys& params, int) : params_(params) {}

  __device__ static void prefetch(const DequantizedKeys& params) {
    cuda::prefetch(params.keys);
    cuda::prefetch(params.values);
  }

  __device__ Piece find(const PrefillTile& tile, int block) const {
    const bool is_there = block >= 0 && block < params_.blocks;
    return {is_there ? params_.place(tile.sequence, tile.kv_head, block) : params_.side_blocks};
  }

  __device__ std::uint32_t holes(const Piece& piece) const {
    constexpr std::uint32_t kAll = (1U << kDequantizedKeys / 8) - 1;
    return is_there(piece) ? await_block(params_.states + piece.place) : kAll;
  }

  __device__ void load_keys(const Piece& piece, std::byte* stage, FullBarrier& full) const {
    load<kConfig.key_swizzle_columns()>(params_.keys, piece, stage, full);
  }
  __device__ void load_values(const Piece& piece, std::byte* stage, FullBarrier& full) const {
    if (is_there(piece)) await_block(params_.states + params_.side_blocks + piece.place);
    load<kConfig.value_swizzle_columns()>(params_.values, piece, stage, full);
  }

 private:
  __device__ bool is_there(const Piece& piece) const { return piece.place < params_.side_blocks; }

  // Behind the last block the map ends: the copy writes zeros.
  template <int kSwizzleColumns>
  __device__ void load(const TensorMap& map, const Piece& piece, std::byte* stage,
                       FullBarrier& full) const {
    const auto swizzle_column = static_cast<int>(threadIdx.x % 32);
    if (swizzle_column < kSwizzleColumns) {
      const BoxLoad load{
          .map = &map,
          .shared = stage + swizzle_column * PrefillShared<kConfig>::kSwizzleColumnBytes,
          .full = &full,
          .hint = L2Hint::EVICT_LAST};
      load_box(load, swizzle_column * kConfig.copied_columns(), piece.place * kDequantizedKeys);
    }
    __syncwarp();
  }

  const DequantizedKeys& params_;
};

}  // namespace quire::cuda::sm90::flash_attention
