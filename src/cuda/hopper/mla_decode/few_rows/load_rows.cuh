// SPDX-License-Identifier: Apache-2.0
// One warp: walks the block's part of the work and has the copy engine bring tiles of rows as the cache
// has them (load_boxes.cuh).
#pragma once

#include "cuda/hopper/flash_attention/decode/find_work.cuh"
#include "cuda/hopper/latent_attention/load_queries.cuh"
#include "cuda/hopper/mla_decode/few_rows/load_boxes.cuh"
#include "cuda/hopper/mla_decode/params.h"
#include "cuda/hopper/mla_decode/roles/describe_item.cuh"
#include "cuda/hopper/mla_decode/touch_lengths.cuh"

namespace quire::cuda::hopper {

template <FewRowsConfig kConfig> class LoadRows {
 public:
  __device__ LoadRows(const MlaDecodeParams& params, FewRowsShared<kConfig>& shared)
      : params_(params),
        shared_(shared),
        pieces_(FewRowsConfig::kKeys / params.pages.box_rows),
        boxes_(params, shared) {}

  __device__ void run() {
    touch_lengths(params_.batch);
    if (lane() == 0) boxes_.prefetch_maps();
    WorkWalk walk = start_walk(params_, cut_batch(params_), static_cast<int>(blockIdx.x));
    for (WorkPiece piece; walk.next(piece);) {
      const SequenceWork& work = walk.work();
      const LatentItem item = describe_item(params_.batch, work, piece);
      if (lane() < kConfig.rows()) prefetch_query(params_.attend, item, lane());
      publish(item);
      load_item(work, piece, walk.sequence());
    }
    publish({});
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }

  __device__ void publish(const LatentItem& item) {
    if (lane() == 0) {
      shared_.item_ring.wait_empty(item_at_);
      shared_.items[item_at_.stage] = item;
      shared_.item_ring.full[item_at_.stage].arrive();
    }
    __syncwarp();
    item_at_.advance();
  }

  __device__ PagePlace find(const std::uint32_t* table, unsigned num_pages, int key, int end) const {
    const int column = key / params_.pages.page_size;
    unsigned page = num_pages;
    if (key < end && column < params_.pages.max_pages) page = min(table[column], num_pages);
    return {.page = page, .row = key - column * params_.pages.page_size};
  }
  __device__ PagePlace find_piece(int sequence, int key, int end) const {
    const LatentPages& pages = params_.pages;
    return find(pages.table + sequence * pages.table_stride, pages.num_pages,
                key + lane() % pieces_ * pages.box_rows, end);
  }
  // Of this lane's two keys of a tile, 32 apart.
  __device__ void find_scales(int sequence, int key, int end, PagePlace (&places)[2]) const {
    if (params_.format.token_scales == nullptr) return;
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
    PagePlace now = find_piece(sequence, key, end);
    PagePlace scales[2];
    find_scales(sequence, key, end, scales);
    for (int tile = piece.begin; tile < piece.end; ++tile) {
      key += kBlockKeys;
      const PagePlace next = find_piece(sequence, key, end);
      PagePlace next_scales[2];
      find_scales(sequence, key, end, next_scales);
      load_tile(now, scales);
      now = next;
#pragma unroll
      for (int i = 0; i < 2; ++i) scales[i] = next_scales[i];
    }
  }

  __device__ void load_tile(const PagePlace& piece, const PagePlace (&scales)[2]) {
    const unsigned missing =
        __ballot_sync(kWholeWarp, piece.page >= params_.pages.num_pages && lane() < pieces_);
    const std::uint64_t valid = valid_bits(missing);
#pragma unroll
    for (int part = 0; part < kConfig.tile_slots(); ++part) {
      shared_.ring.wait_empty(at_);
      if (lane() == 0) {
        shared_.valid[at_.stage] = valid;
        shared_.ring.full[at_.stage].arrive_and_expect_tx(boxes_.bytes(part));
      }
      __syncwarp();
      if (lane() < pieces_) boxes_.load(at_.stage, part, piece);
      boxes_.copy_scales(at_.stage, scales);
      __syncwarp();
      at_.advance();
    }
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
  FewRowsShared<kConfig>& shared_;
  const int pieces_;  // of a tile, at most 4
  LoadBoxes<kConfig> boxes_;
  RingPosition<kConfig.slots> at_;
  RingPosition<FewRowsConfig::kItems> item_at_;
};

}  // namespace quire::cuda::hopper
