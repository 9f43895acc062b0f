// SPDX-License-Identifier: Apache-2.0
// A source of keys for the prefill kernel with products of e4m3 (what it offers stands at the head of
// flash_attention/prefill/paged_source.cuh): a block of K is a box of the head's 128 columns and one
// of the 64 rope columns, behind which TMA writes zeros; one of V is one box.
#pragma once

#include "cuda/common/prefill_attention/fp8/run_fp8.cuh"
#include "cuda/sm90/mla_prefill/projected_source.cuh"
#include "cuda/sm90/mla_prefill/variants.h"

namespace quire::cuda::sm90::mla_prefill {

template <PrefillConfig kConfig> class Fp8Source {
 public:
  using Params = ProjectedKeys;  // of e4m3
  using Rows = ProjectedSource<kConfig>;
  using Piece = typename Rows::Piece;

  __device__ Fp8Source(const ProjectedKeys& params, int half)
      : params_(params), rows_(params, half), box_(2 * static_cast<int>(threadIdx.x % 32) + half) {}

  __device__ static void prefetch(const ProjectedKeys& params) { Rows::prefetch(params); }
  __device__ Piece find(const PrefillTile& tile, int block) const {
    return rows_.find(tile, block);
  }
  __device__ std::uint32_t holes(const Piece& piece) const { return rows_.holes(piece); }

  __device__ void load_keys(const Piece& piece, std::byte* stage, FullBarrier& full) const {
    if (box_ == 0) {
      load_box(box_load(params_.projected, stage, full), 0, piece.head, piece.row);
    } else if (box_ == 1) {
      load_box(box_load(params_.rope, stage, full), 0, 0, piece.row);
    }
    __syncwarp();
  }
  __device__ void load_values(const Piece& piece, std::byte* stage, FullBarrier& full) const {
    constexpr int kFirstColumn = 128;  // behind K's
    if (box_ == 0) {
      load_box(box_load(params_.projected, stage, full), kFirstColumn, piece.head, piece.row);
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
