// SPDX-License-Identifier: Apache-2.0
// K out of the pages, V out of the workspace, transposed (flip_values.h): a block of it is one box.
#pragma once

#include "cuda/hopper/flash_attention/prefill/narrow/flipped_keys.h"
#include "cuda/hopper/flash_attention/prefill/paged_source.cuh"

namespace quire::cuda::hopper {

// What it offers stands at the head of paged_source.cuh.
template <PrefillConfig kConfig> class FlippedSource {
 public:
  using Params = FlippedKeys;
  using Pages = PagedSource<kConfig>;

  struct Piece {
    typename Pages::Piece page;
    int value_row;
  };

  __device__ FlippedSource(const FlippedKeys& params, int half)
      : params_(params), pages_(params.pages, half), half_(half) {}

  __device__ static void prefetch(const FlippedKeys& params) {
    hopper::prefetch(params.pages.keys);
    hopper::prefetch(params.values);
  }
  __device__ Piece find(const PrefillTile& tile, int block) const {
    const int at = (tile.sequence * params_.blocks + block) * params_.kv_heads + tile.kv_head;
    return {.page = pages_.find(tile, block), .value_row = at * kConfig.value_dim};
  }
  __device__ std::uint32_t holes(const Piece& piece) const { return pages_.holes(piece.page); }

  __device__ void load_keys(const Piece& piece, std::byte* stage, FullBarrier& full) const {
    pages_.load_keys(piece.page, stage, full);
  }
  __device__ void load_values(const Piece& piece, std::byte* stage, FullBarrier& full) const {
    if (half_ == 0 && threadIdx.x % 32 == 0) {
      const BoxLoad load{
          .map = &params_.values, .shared = stage, .full = &full, .hint = L2Hint::EVICT_LAST};
      load_box(load, 0, piece.value_row);
    }
    __syncwarp();
  }

 private:
  const FlippedKeys& params_;
  const Pages pages_;
  const int half_;
};

}  // namespace quire::cuda::hopper
