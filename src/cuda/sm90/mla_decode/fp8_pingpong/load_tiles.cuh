// SPDX-License-Identifier: Apache-2.0
// The loading warpgroup: tiles of keys by TMA, as soon as O has the tile that stood there; their scales; work tiles as the
// other roles see them.
#pragma once

#include <cute/arch/copy_sm80.hpp>

#include "cuda/common/pipeline/tma.cuh"
#include "cuda/common/split_kv/find_work.cuh"
#include "cuda/common/split_kv/split_schedule.h"
#include "cuda/common/thread/warp_reduce.cuh"
#include "cuda/sm90/mla_decode/fp8_pingpong/shared.cuh"
#include "cuda/sm90/mla_decode/latent/shared.cuh"
#include "cuda/sm90/mla_decode/params.h"

namespace quire::cuda::sm90::mla_decode {

template <Fp8PingpongConfig kConfig> class LoadCodes {
 public:
  using Shared = Fp8PingpongShared<kConfig>;

  // `tiles`: of the whole batch.
  __device__ LoadCodes(const MlaDecodeParams& params, Shared& shared, int tiles)
      : params_(params),
        shared_(shared),
        box_bits_(params.pages.box_bits),
        boxes_(Fp8Pingpong::kKeys >> box_bits_),
        hint_(tiles < kManyTiles ? L2Hint::EVICT_FIRST : L2Hint::EVICT_NORMAL) {}

  __device__ void run(WorkWalk walk) {
    for (WorkSplit split; walk.next(split);) {
      load_work_tile(walk.work(), split, walk.sequence());
    }
  }

 private:
  static constexpr int kBatchBoxes = 32;
  static constexpr int kTileBits = 6;
  // As for few query rows (swap_ab/load_units.cuh).
  static constexpr int kManyTiles = 12 * 1024;
  static constexpr int kTileBytes =
      Fp8Pingpong::kGroups * Fp8Pingpong::kColumnBytes + Shared::kRopeBytes +
      (kConfig.kind == Fp8RowKind::block ? sizeof(Shared::scales[0]) : 0);

  // Where a box of a tile stands.
  struct Box {
    PageSlot slot{};
    unsigned scale_page = 0;
  };

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }

  __device__ Box find(int sequence, int key, int end) const {
    Box box{.slot = PageCursor(params_.pages.kv.pages, sequence).find(key, end)};
    if constexpr (kConfig.kind == Fp8RowKind::token) {
      const PageTable& table = params_.format.scale_pages;
      box.scale_page = box.slot.column < 0 ? table.num_pages()
                                           : PageCursor(table, sequence).page(box.slot.column);
    }
    return box;
  }

  // The table is looked up 32 boxes at a time, one by each lane, and a batch ahead.
  __device__ void load_work_tile(const SequenceWork& work, const WorkSplit& split, int sequence) {
    const int end = work.num_keys;
    const int tiles = split.end - split.begin;
    const int batch = kBatchBoxes >> (kTileBits - box_bits_);  // tiles
    int first_key = (work.first_block + split.begin) * kBlockKeys;
    int key = first_key + (lane() << box_bits_);
    Box now = find(sequence, key, end);
    Box next = now;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile, first_key += kBlockKeys) {
      const int in_batch = tile & (batch - 1);
      if (in_batch == 0) {
        if (tile > 0) now = next;
        key += batch * kBlockKeys;
        if (tile + batch < tiles) next = find(sequence, key, end);
      }
      load_tile(now, in_batch, end - first_key);
    }
  }

  // `first`: of the batch's boxes, the tile's.
  __device__ Box take(const Box& batch, int box) const {
    Box taken{.slot = {.page = min(__shfl_sync(kWholeWarp, batch.slot.page, box), num_pages()),
                       .row = __shfl_sync(kWholeWarp, batch.slot.row, box),
                       .column = 0}};
    if constexpr (kConfig.kind == Fp8RowKind::token) {
      taken.scale_page = __shfl_sync(kWholeWarp, batch.scale_page, box);
    }
    return taken;
  }
  __device__ unsigned num_pages() const {
    return params_.pages.kv.pages.num_pages();
  }

  // `keys`: of the sequence from the tile's first on.
  __device__ void load_tile(const Box& batch, int in_batch, int keys) {
    const int stage = at_.stage;
    const int first = in_batch * boxes_;
    const Box own = take(batch, first + (lane() & (boxes_ - 1)));
    // A CTA's first tiles are asked for one after another: all at once, the first would come with the last.
    if (tiles_ > 0 && tiles_ < kConfig.stages) shared_.full[tiles_ - 1].wait(0);
    ++tiles_;
    shared_.empty[stage].wait(at_.phase ^ 1);
    leave_valid(own.slot, stage, keys);
    if (lane() == 0) shared_.full[stage].arrive_and_expect_tx(kTileBytes);
    __syncwarp();
    if (lane() < boxes_) load_boxes(own.slot, stage);
    if constexpr (kConfig.kind == Fp8RowKind::token) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int key = lane() + 32 * i;
        copy_scale(take(batch, first + (key >> box_bits_)), stage, key, key < keys);
      }
      cutlass::arch::cpasync_barrier_arrive_noinc(
          reinterpret_cast<std::uint64_t*>(&shared_.full[stage]));
    }
    __syncwarp();
    at_.advance();
  }

  __device__ void load_boxes(const PageSlot& slot, int stage) const {
    const int row = lane() << box_bits_;
    const auto page = static_cast<int>(slot.page);
    const auto box = [&](const TensorMap& map, void* target) {
      return BoxLoad{.map = &map, .shared = target, .full = &shared_.full[stage], .hint = hint_};
    };
    if (boxes_ == 1) {
      load_box(box(params_.latents, shared_.latents[stage]), 0, slot.row, 0, page);
    } else {
#pragma unroll 1
      for (int column = 0; column < Fp8Pingpong::kGroups; ++column) {
        load_box(box(params_.latents, shared_.latents[stage][column] + row * kRowBytes), 0,
                 slot.row, column, page);
      }
    }
    load_box(box(params_.tails, shared_.rope[stage] + row * kConfig.rope_bytes()), 0, slot.row, 0,
             page);
    if constexpr (kConfig.kind == Fp8RowKind::block) {
      load_box(box(params_.scales, shared_.scales[stage] + row * kConfig.row_scales()), 0, slot.row,
               page);
    }
  }

  // Zeros, where there are none.
  __device__ void copy_scale(const Box& box, int stage, int key, bool is_key) const {
    const LatentRowFormat& format = params_.format;
    const bool is_there = is_key && box.scale_page < format.scale_pages.num_pages();
    const float* source = format.token_scales;
    if (is_there) {
      source += box.scale_page * format.scale_page_stride +
                (box.slot.row + (key & ((1 << box_bits_) - 1))) * format.scale_token_stride;
    }
    auto target = shared_address(&shared_.scales[stage][key]);
    asm volatile("" : "+r"(target));  // as in copy_query (latent/shared.cuh)
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(target), "l"(source),
                 "r"(is_there ? 4 : 0)
                 : "memory");
  }

  // Which keys of the tile are the sequence's, and in assigned pages. The arrival that follows hands it on.
  __device__ void leave_valid(const PageSlot& slot, int stage, int keys) const {
    unsigned missing = __ballot_sync(kWholeWarp, slot.page >= num_pages() && lane() < boxes_);
    std::uint64_t bits = ~std::uint64_t{0};
    if (keys < Fp8Pingpong::kKeys) bits >>= Fp8Pingpong::kKeys - keys;
    const int rows = 1 << box_bits_;
    for (int i = 0; missing != 0; ++i, missing >>= 1) {
      if ((missing & 1) != 0) bits &= ~((~std::uint64_t{0} >> (64 - rows)) << (i * rows));
    }
    if (lane() == 0) shared_.valid[stage] = bits;
  }

  const MlaDecodeParams& params_;
  Shared& shared_;
  const int box_bits_;  // of the rows of a box
  const int boxes_;     // of a tile, at most 4
  const L2Hint hint_;
  int tiles_ = 0;
  RingPosition<kConfig.stages> at_;
};

// Scales of a tile, for all of its query rows: `tiles` in turn.
template <Fp8PingpongConfig kConfig>
__device__ inline void divide_scales(Fp8PingpongShared<kConfig>& shared, WorkWalk walk) {
  constexpr std::uint32_t kLeastField = 20;
  constexpr std::uint32_t kMostField = 253;
  const auto lane = static_cast<int>(threadIdx.x % 32);
  RingPosition<kConfig.stages> at;
  for (WorkSplit split; walk.next(split);) {
#pragma unroll 1
    for (int tile = split.begin; tile < split.end; ++tile, at.advance()) {
      shared.full[at.stage].wait(at.phase);
      const std::uint64_t valid = shared.valid[at.stage];
#pragma unroll 1
      for (int g = 0; g < kConfig.scale_groups(); ++g) {
        float scales[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int key = lane + 32 * i;
          const float scale = shared.scales[at.stage][key * kConfig.row_scales() + g];
          scales[i] = (valid >> key & 1) != 0 ? scale : 0.0F;
        }
        const float top = warp_max(fmaxf(fabsf(scales[0]), fabsf(scales[1])));
        const std::uint32_t field = (__float_as_uint(top) + 0x7fffffU) >> 23;
        const float power = __uint_as_float(max(min(field, kMostField), kLeastField) << 23);
        const float inverse = 1.0F / power;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          shared.ratios[at.stage][g][lane + 32 * i] = scales[i] * inverse;
        }
        if (lane == 0) shared.powers[at.stage][g] = power;
      }
      shared.scaled[at.stage].arrive();
    }
  }
}

// Work tiles, described for those who multiply; their queries into L2.
template <typename Shared>
__device__ inline void describe_work(const MlaDecodeParams& params, Shared& shared, int first_row,
                                     WorkWalk walk) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  RingPosition<Fp8Pingpong::kWorkTiles> at;
  const auto publish = [&](const LatentWorkTile& work_tile) {
    if (lane == 0) {
      shared.work_tile_ring.wait_empty(at);
      shared.work_tiles[at.stage] = work_tile;
      shared.work_tile_ring.full[at.stage].arrive();
    }
    __syncwarp();
    at.advance();
  };
  bool is_first = true;
  for (WorkSplit split; walk.next(split); is_first = false) {
    const LatentWorkTile work_tile =
        describe_work_tile(params.batch, walk.work(), split, walk.sequence());
    // The first one's are wanted at once.
    for (int row = lane; row < Fp8Pingpong::kRows && !is_first; row += 32) {
      prefetch_query(params.attend, work_tile, first_row + row);
    }
    publish(work_tile);
  }
  publish({});
}

}  // namespace quire::cuda::sm90::mla_decode
