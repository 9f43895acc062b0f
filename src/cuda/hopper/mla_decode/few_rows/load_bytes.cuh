// SPDX-License-Identifier: Apache-2.0
// One warp: walks the block's part of the work and has the copy engine bring tiles of rows as the cache
// has them. Scales that stand in a tensor of their own are copied by the lanes.
#pragma once

#include "cuda/hopper/flash_attention/decode/find_work.cuh"
#include "cuda/hopper/latent_attention/load_queries.cuh"
#include "cuda/hopper/mla_decode/few_rows/shared.cuh"
#include "cuda/hopper/mla_decode/params.h"
#include "cuda/hopper/mla_decode/roles/describe_item.cuh"
#include "cuda/hopper/mla_decode/touch_lengths.cuh"
#include "cuda/hopper/tile/tma.cuh"

namespace quire::cuda::hopper {

template <typename Variant> class LoadBytes {
 public:
  __device__ LoadBytes(const MlaDecodeParams& params, FewRowsShared<Variant>& shared)
      : params_(params), shared_(shared), pieces_(FewRows::kKeys / params.pages.box_rows) {}

  __device__ void run() {
    touch_lengths(params_.batch);
    if (lane() == 0) {
      prefetch(params_.latents);
      prefetch(params_.tails);
      if (has_row_scales()) prefetch(params_.scales);
    }
    WorkWalk walk = start_walk(params_, cut_batch(params_), static_cast<int>(blockIdx.x));
    for (WorkPiece piece; walk.next(piece);) {
      const SequenceWork& work = walk.work();
      const LatentItem item = describe_item(params_.batch, work, piece);
      if (lane() < Variant::kRows) prefetch_query(params_.attend, item, lane());
      publish(item);
      load_item(work, piece, walk.sequence());
    }
    publish({});
  }

 private:
  // A place in the pages. `page` not below the pages' number: none.
  struct Place {
    unsigned page;
    int row;  // of the page
  };

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ bool has_row_scales() const { return params_.format.row_scales_offset_bytes >= 0; }
  __device__ bool has_token_scales() const { return params_.format.token_scales != nullptr; }

  __device__ void publish(const LatentItem& item) {
    if (lane() == 0) {
      shared_.item_ring.wait_empty(item_at_);
      shared_.items[item_at_.stage] = item;
      shared_.item_ring.full[item_at_.stage].arrive();
    }
    __syncwarp();
    item_at_.advance();
  }

  __device__ Place find(const std::uint32_t* table, unsigned num_pages, int key, int end) const {
    const int column = key / params_.pages.page_size;
    unsigned page = num_pages;
    if (key < end && column < params_.pages.max_pages) page = min(table[column], num_pages);
    return {.page = page, .row = key - column * params_.pages.page_size};
  }
  __device__ Place find_piece(int sequence, int key, int end) const {
    const LatentPages& pages = params_.pages;
    return find(pages.table + sequence * pages.table_stride, pages.num_pages,
                key + lane() % pieces_ * pages.box_rows, end);
  }
  // Of this lane's two keys of a tile, 32 apart.
  __device__ void find_scales(int sequence, int key, int end, Place (&places)[2]) const {
    if (!has_token_scales()) return;
    const LatentRowFormat& format = params_.format;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      places[i] = find(format.scale_table + sequence * format.scale_table_stride,
                       format.scale_pages, key + 32 * i + lane(), end);
    }
  }

  // Tables are looked up a tile ahead.
  __device__ void load_item(const SequenceWork& work, const WorkPiece& piece, int sequence) {
    const int end = work.num_keys();
    int key = (work.first_block + piece.begin) * kBlockKeys;
    Place now = find_piece(sequence, key, end);
    Place scales[2];
    find_scales(sequence, key, end, scales);
    for (int tile = piece.begin; tile < piece.end; ++tile) {
      key += kBlockKeys;
      const Place next = find_piece(sequence, key, end);
      Place next_scales[2];
      find_scales(sequence, key, end, next_scales);
      load_tile(now, scales);
      now = next;
#pragma unroll
      for (int i = 0; i < 2; ++i) scales[i] = next_scales[i];
    }
  }

  __device__ void load_tile(const Place& piece, const Place (&scales)[2]) {
    const unsigned missing =
        __ballot_sync(kWholeWarp, piece.page >= params_.pages.num_pages && lane() < pieces_);
    shared_.ring.wait_empty(at_);
    FullBarrier& full = shared_.ring.full[at_.stage];
    if (lane() == 0) {
      shared_.valid[at_.stage] = valid_bits(missing);
      const int rope = params_.format.has_fp8_rope ? LatentConfig::kRope : 2 * LatentConfig::kRope;
      full.arrive_and_expect_tx(FewRows::kKeys *
                                (LatentConfig::kLatent + rope + (has_row_scales() ? 16 : 0)));
    }
    __syncwarp();
    if (lane() < pieces_) load_boxes(piece);
    if (has_token_scales()) copy_scales(scales);
    __syncwarp();
    at_.advance();
  }

  __device__ void load_boxes(const Place& piece) {
    FewRowsStage& stage = shared_.stages[at_.stage];
    const LatentRowFormat& format = params_.format;
    const int first = lane() * params_.pages.box_rows;
    const auto load = [&](const TensorMap& map, std::byte* target, int byte) {
      load_box({.map = &map,
                .shared = target,
                .full = &shared_.ring.full[at_.stage],
                .hint = L2Hint::EVICT_FIRST},
               byte, piece.row, static_cast<int>(piece.page));
    };
#pragma unroll
    for (int slab = 0; slab < FewRows::kLatentSlabs; ++slab) {
      load(params_.latents, stage.latents[slab] + first * kRowBytes, slab * kRowBytes);
    }
    load(params_.tails,
         stage.rope + first * (format.has_fp8_rope ? LatentConfig::kTailBytes : kRowBytes),
         format.rope_offset_bytes);
    if (has_row_scales()) {
      load(params_.scales, reinterpret_cast<std::byte*>(&stage.scales[first]),
           format.row_scales_offset_bytes);
    }
  }

  __device__ void copy_scales(const Place (&places)[2]) {
    const LatentRowFormat& format = params_.format;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool is_there = places[i].page < format.scale_pages;
      const float* source = format.token_scales;
      if (is_there) {
        source +=
            places[i].page * format.scale_page_stride + places[i].row * format.scale_token_stride;
      }
      auto target = static_cast<std::uint32_t>(
          __cvta_generic_to_shared(&shared_.stages[at_.stage].scales[32 * i + lane()]));
      asm volatile("" : "+r"(target));  // as in copy_query (load_queries.cuh)
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(target), "l"(source),
                   "r"(is_there ? 4 : 0)
                   : "memory");
    }
    cutlass::arch::cpasync_barrier_arrive_noinc(
        reinterpret_cast<std::uint64_t*>(&shared_.ring.full[at_.stage]));
  }

  __device__ std::uint64_t valid_bits(unsigned missing) const {
    std::uint64_t bits = ~std::uint64_t{0};
    const int rows = params_.pages.box_rows;
    for (int piece = 0; missing != 0; ++piece, missing >>= 1) {
      if ((missing & 1) != 0) bits &= ~((~std::uint64_t{0} >> (64 - rows)) << (piece * rows));
    }
    return bits;
  }

  const MlaDecodeParams& params_;
  FewRowsShared<Variant>& shared_;
  const int pieces_;  // of a tile, at most 4
  RingPosition<Variant::kStages> at_;
  RingPosition<FewRows::kItems> item_at_;
};

}  // namespace quire::cuda::hopper
