// SPDX-License-Identifier: Apache-2.0
// Blocks of keys and values out of the workspace, as soon as the warps that expand them are done:
// what the load role asks of a source stands in paged_source.cuh. One warp loads a whole block.
#pragma once

#include "cuda/common/pipeline/tma.cuh"
#include "cuda/common/prefill_attention/shared.cuh"
#include "cuda/sm90/flash_attention/prefill/expanded/block_state.cuh"
#include "cuda/sm90/flash_attention/prefill/expanded/expanded_keys.h"

namespace quire::cuda::sm90::flash_attention {

template <PrefillConfig kConfig> class ExpandedSource {
 public:
  using Params = ExpandedKeys;
  static_assert(kConfig.block_keys == kExpandedKeys);

  struct Piece {
    int place;  // of the block; behind the last one: there is none
  };

  __device__ ExpandedSource(const ExpandedKeys& params, int) : params_(params) {}

  __device__ static void prefetch(const ExpandedKeys& params) {
    cuda::prefetch(params.keys);
    cuda::prefetch(params.values);
  }

  __device__ Piece find(const PrefillTile& tile, int block) const {
    const bool is_there = block >= 0 && block < params_.blocks;
    return {is_there ? params_.place(tile.sequence, tile.kv_head, block) : params_.side_blocks};
  }

  __device__ std::uint32_t holes(const Piece& piece) const {
    constexpr std::uint32_t kAll = (1U << kExpandedKeys / 8) - 1;
    return is_there(piece) ? await_block(params_.states + piece.place) : kAll;
  }

  __device__ void load_keys(const Piece& piece, std::byte* stage, FullBarrier& full) const {
    load<kConfig.key_slabs()>(params_.keys, piece, stage, full);
  }
  __device__ void load_values(const Piece& piece, std::byte* stage, FullBarrier& full) const {
    if (is_there(piece)) await_block(params_.states + params_.side_blocks + piece.place);
    load<kConfig.value_slabs()>(params_.values, piece, stage, full);
  }

 private:
  __device__ bool is_there(const Piece& piece) const { return piece.place < params_.side_blocks; }

  // Behind the last block the map ends: the copy writes zeros.
  template <int kSlabs>
  __device__ void load(const TensorMap& map, const Piece& piece, std::byte* stage,
                       FullBarrier& full) const {
    const auto slab = static_cast<int>(threadIdx.x % 32);
    if (slab < kSlabs) {
      const BoxLoad load{.map = &map,
                         .shared = stage + slab * PrefillShared<kConfig>::kSlabBytes,
                         .full = &full,
                         .hint = L2Hint::EVICT_LAST};
      load_box(load, slab * kConfig.copied_columns(), piece.place * kExpandedKeys);
    }
    __syncwarp();
  }

  const ExpandedKeys& params_;
};

}  // namespace quire::cuda::sm90::flash_attention
