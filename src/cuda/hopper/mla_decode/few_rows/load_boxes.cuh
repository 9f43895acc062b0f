// SPDX-License-Identifier: Apache-2.0
// One slot's bytes: boxes of the copy engine, and scales that stand in a tensor of their own, which the
// lanes copy.
#pragma once

#include "cuda/hopper/mla_decode/few_rows/shared.cuh"
#include "cuda/hopper/mla_decode/params.h"
#include "cuda/hopper/tile/tma.cuh"

namespace quire::cuda::hopper {

struct PagePlace {
  unsigned page;  // not below the number of pages: none
  int row;        // of the page
};

template <FewRowsConfig kConfig, DType kLatents = kConfig.latents> class LoadBoxes {
 public:
  __device__ LoadBoxes(const MlaDecodeParams& params, FewRowsShared<kConfig>& shared)
      : params_(params), shared_(shared) {}

  __device__ void prefetch_maps() const {
    prefetch(params_.latents);
    prefetch(params_.tails);
    if (has_row_scales()) prefetch(params_.scales);
  }

  __device__ int bytes(int /*part*/) const {
    const int rope = params_.format.has_fp8_rope ? LatentConfig::kRope : 2 * LatentConfig::kRope;
    return FewRowsConfig::kKeys * (LatentConfig::kLatent + rope + (has_row_scales() ? 16 : 0));
  }

  // This lane's piece of the tile.
  __device__ void load(int slot, int /*part*/, const PagePlace& piece) const {
    auto& target = shared_.slots[slot];
    const LatentRowFormat& format = params_.format;
    const int first = static_cast<int>(threadIdx.x % 32) * params_.pages.box_rows;
    const auto load = [&](const TensorMap& map, std::byte* place, int byte) {
      load_box({.map = &map,
                .shared = place,
                .full = &shared_.ring.full[slot],
                .hint = L2Hint::EVICT_FIRST},
               byte, piece.row, static_cast<int>(piece.page));
    };
#pragma unroll
    for (int slab = 0; slab < FewRowsSlot<kConfig>::kSlabs; ++slab) {
      load(params_.latents, target.latents[slab] + first * kRowBytes, slab * kRowBytes);
    }
    load(params_.tails,
         target.rope + first * (format.has_fp8_rope ? LatentConfig::kTailBytes : kRowBytes),
         format.rope_offset_bytes);
    if (has_row_scales()) {
      load(params_.scales, reinterpret_cast<std::byte*>(&target.scales[first]),
           format.row_scales_offset_bytes);
    }
  }

  // Of this lane's two keys, 32 apart.
  __device__ void copy_scales(int slot, const PagePlace (&places)[2]) const {
    const LatentRowFormat& format = params_.format;
    if (format.token_scales == nullptr) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool is_there = places[i].page < format.scale_pages;
      const float* source = format.token_scales;
      if (is_there) {
        source +=
            places[i].page * format.scale_page_stride + places[i].row * format.scale_token_stride;
      }
      auto target = static_cast<std::uint32_t>(
          __cvta_generic_to_shared(&shared_.slots[slot].scales[32 * i + threadIdx.x % 32]));
      asm volatile("" : "+r"(target));  // as in copy_query (load_queries.cuh)
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(target), "l"(source),
                   "r"(is_there ? 4 : 0)
                   : "memory");
    }
    cutlass::arch::cpasync_barrier_arrive_noinc(
        reinterpret_cast<std::uint64_t*>(&shared_.ring.full[slot]));
  }

 private:
  __device__ bool has_row_scales() const { return params_.format.row_scales_offset_bytes >= 0; }

  const MlaDecodeParams& params_;
  FewRowsShared<kConfig>& shared_;
};

template <FewRowsConfig kConfig> class LoadBoxes<kConfig, DType::bf16> {
 public:
  __device__ LoadBoxes(const MlaDecodeParams& params, FewRowsShared<kConfig>& shared)
      : params_(params), shared_(shared) {}

  __device__ void prefetch_maps() const { prefetch(params_.latents); }

  __device__ int bytes(int part) const {
    return (kSlabs + (part == 0 ? 1 : 0)) * FewRowsConfig::kKeys * kRowBytes;
  }

  __device__ void load(int slot, int part, const PagePlace& piece) const {
    auto& target = shared_.slots[slot];
    const int first = static_cast<int>(threadIdx.x % 32) * params_.pages.box_rows * kRowBytes;
    const auto load = [&](std::byte* place, int column) {
      load_box({.map = &params_.latents,
                .shared = place,
                .full = &shared_.ring.full[slot],
                .hint = L2Hint::EVICT_FIRST},
               column, piece.row, static_cast<int>(piece.page));
    };
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      load(target.latents[slab] + first, (part * kSlabs + slab) * LatentConfig::kSlabColumns);
    }
    if (part == 0) load(target.rope + first, LatentConfig::kLatent);
  }

  __device__ void copy_scales(int, const PagePlace (&)[2]) const {}

 private:
  static constexpr int kSlabs = FewRowsSlot<kConfig>::kSlabs;

  const MlaDecodeParams& params_;
  FewRowsShared<kConfig>& shared_;
};

}  // namespace quire::cuda::hopper
