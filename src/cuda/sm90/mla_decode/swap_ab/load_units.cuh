// SPDX-License-Identifier: Apache-2.0
// Four warps: walk the block's part of the work and have the copy engine bring 16 rows of every tile
// each. How rows stand then: unit_rows.cuh.
#pragma once

#include "cuda/common/pipeline/tma.cuh"
#include "cuda/sm90/mla_decode/latent/load_queries.cuh"
#include "cuda/sm90/mla_decode/params.h"
#include "cuda/sm90/mla_decode/roles/describe_item.cuh"
#include "cuda/sm90/mla_decode/roles/find_part.cuh"
#include "cuda/sm90/mla_decode/roles/publish_split_count.cuh"
#include "cuda/sm90/mla_decode/swap_ab/shared.cuh"
#include "cuda/sm90/mla_decode/swap_ab/unit_rows.cuh"

namespace quire::cuda::sm90::mla_decode {

// Shared: SwapAbShared, or another that has as much of its members. kSharing: blocks that have the same keys, each with
// rows of its own.
template <SwapAbConfig kConfig, typename Shared = SwapAbShared<kConfig>, int kSharing = 1>
class LoadUnits {
 public:
  // `warp`: of the four.
  __device__ LoadUnits(const MlaDecodeParams& params, Shared& shared, int warp)
      : params_(params), shared_(shared), warp_(warp) {}

  // `part`: of the work, the cluster's.
  __device__ void run(const ClusterPart& part) {
    const int block = cluster();
    if (part.cuts.total < kManyTiles) hint_ = L2Hint::EVICT_FIRST;
    WorkPiece first;
    const bool has_first = first_piece(params_.split, part.cuts, part.place, block, first);
    if (has_first) ask_first(part.place, first);
    WorkWalk walk(params_.batch, params_.split, part.cuts, part.place, block);
    for (WorkPiece piece; walk.next(piece);) {
      const SequenceWork& work = walk.work();
      if (tile_ > 0 || !has_first) begin_item(work, piece);
      load_item(work, piece, walk.sequence());
      if (warp_ == 0) publish_split_count(params_, block, work, piece, walk.sequence());
    }
    publish({});
  }

 private:
  static constexpr int kKeys = SwapAbConfig::kUnitKeys;
  // Boxes of whole rows, and as wide as the widest; otherwise in swizzle columns.
  static constexpr bool kIsSpaced =
      kConfig.kind == SwapAbKind::fp8_block || kConfig.kind == SwapAbKind::fp8_spaced;
  // In a tensor of their own.
  static constexpr bool kMayHaveScales =
      kConfig.kind == SwapAbKind::fp8 || kConfig.kind == SwapAbKind::fp8_spaced;
  // Below so many tiles of the batch, rows are to be evicted first. Measured after 256 MiB were written, 16
  // heads, evicted first against not: bf16 322 and 306 µs (batch 128, 8 192 keys), e4m3 in rows of 656
  // bytes 193 and 191, but 109 and 110 (4 096 keys), 66 and 70 (batch 64).
  static constexpr int kManyTiles =
      kConfig.is_fp8() ? 12 * 1024 : (240 << 20) / (kBlockKeys * 1152);

  // A block's first tiles are asked for one after another. All at once, the first would come with the
  // last, and the queries behind them: what all blocks have room for takes memory 6 µs.
  static constexpr int kFirstTiles = kConfig.units / SwapAbConfig::kTileUnits + 1;

  // Where 16 keys of a page stand.
  struct Found {
    unsigned page = 0;
    int row = 0;
    int live = 0;  // the first ones are the sequence's and on a page
    unsigned scale_page = 0;
  };

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static int cluster() { return static_cast<int>(blockIdx.x / kSharing); }
  // Of an item, this block's.
  __device__ static int first_row() {
    return static_cast<int>(blockIdx.x % kSharing) * kConfig.rows;
  }

  __device__ void publish(const LatentItem& item) {
    if (warp_ == 0 && lane() == 0) {
      shared_.item_ring.wait_empty(item_at_);
      shared_.items[item_at_.stage] = item;
      shared_.item_ring.full[item_at_.stage].arrive();
    }
    __syncwarp();
    item_at_.advance();
  }

  // Keys from `key` on, of which `count` are the sequence's.
  __device__ Found find(int sequence, int key, int count) const {
    const LatentPages& pages = params_.pages;
    const LatentRowFormat& format = params_.format;
    const auto column =
        static_cast<int>(pages.by_page_size.quotient(static_cast<std::uint32_t>(key)));
    const int row = key - column * pages.page_size;
    Found found{.page = pages.num_pages, .row = row};
    if (count <= 0 || column >= pages.max_pages) return found;
    found.page = min(pages.table[sequence * pages.table_stride + column], pages.num_pages);
    if (kMayHaveScales && format.token_scales != nullptr) {
      found.scale_page = format.scale_table[sequence * format.scale_table_stride + column];
    }
    if (found.page < pages.num_pages) found.live = min(count, kKeys);
    return found;
  }

  // Its first key, of those that this warp loads.
  __device__ int first_key(const SequenceWork& work, const WorkPiece& piece) const {
    return (work.first_block + piece.begin) * kBlockKeys + warp_ * kKeys;
  }

  __device__ void begin_item(const SequenceWork& work, const WorkPiece& piece) {
    const LatentItem item = describe_item(params_.batch, work, piece);
    if constexpr (kConfig.rows <= 32) {
      if (warp_ == 0 && lane() < kConfig.rows) prefetch_query(params_.attend, item, lane());
    } else {
      const int row = 32 * warp_ + lane();
      if (row < kConfig.rows) prefetch_query(params_.attend, item, first_row() + row);
    }
    publish(item);
  }

  __device__ void ask_first(const LinePlace& place, const WorkPiece& piece) {
    const int key = first_key(place.work, piece);
    const Found found = find(place.sequence, key, place.work.num_keys() - key);
    begin_item(place.work, piece);
    load_unit(found);
  }

  // Tables are looked up a tile ahead.
  __device__ void load_item(const SequenceWork& work, const WorkPiece& piece, int sequence) {
    const int end = work.num_keys();
    int key = first_key(work, piece);
    Found now = find(sequence, key, end - key);
    for (int tile = piece.begin; tile < piece.end; ++tile, ++tile_) {
      key += kBlockKeys;
      const Found next = find(sequence, key, end - key);
      if (tile_ > 0 || params_.split.is_invariant) load_unit(now);
      now = next;
    }
  }

  // A page that is not there lies outside the map: zeros.
  __device__ void load_unit(const Found& found) {
    const UnitPlace<kConfig> at(tile_, warp_);
    if (tile_ > 0 && tile_ < kFirstTiles) {
      const UnitPlace<kConfig> before(tile_ - 1, warp_);
      shared_.full[before.place].wait(before.phase);
    }
    shared_.empty[at.place].wait(at.phase ^ 1);
    if (lane() == 0) {
      shared_.live[at.place] = found.live;
      shared_.full[at.place].arrive_and_expect_tx(kIsSpaced ? sizeof(shared_.units[0])
                                                            : kKeys * params_.pages.row_bytes);
      const BoxLoad load{.map = &params_.latents,
                         .shared = shared_.units[at.place],
                         .full = &shared_.full[at.place],
                         .hint = hint_};
      if constexpr (kIsSpaced) {
        load_box(load, 0, found.row, static_cast<int>(found.page));
      } else {
        load_box(load, 0, found.row, 0, static_cast<int>(found.page));
      }
      if constexpr (kConfig.kind == SwapAbKind::fp8) load_tail(load, found);
    }
    if (kMayHaveScales && params_.format.token_scales != nullptr) copy_scales(found, at.place);
    __syncwarp();
  }

  // Rope columns of e4m3, behind the swizzle columns.
  __device__ void load_tail(BoxLoad load, const Found& found) const {
    if (!params_.format.has_fp8_rope) return;
    constexpr int kTailBytes = LatentConfig::kRope;
    load.map = &params_.tails;
    load.shared = static_cast<std::byte*>(load.shared) + UnitRows<kConfig.kind>::kTail;
    load_box(load, 0, found.row, LatentConfig::kLatent / kTailBytes, static_cast<int>(found.page));
  }

  // Zeros, where there are none.
  __device__ void copy_scales(const Found& found, int place) const {
    if (lane() < kKeys) {
      const LatentRowFormat& format = params_.format;
      const bool is_there = found.scale_page < format.scale_pages && lane() < found.live;
      const float* source = format.token_scales;
      if (is_there) {
        source += found.scale_page * format.scale_page_stride +
                  (found.row + lane()) * format.scale_token_stride;
      }
      auto target =
          static_cast<std::uint32_t>(__cvta_generic_to_shared(&shared_.scales[place][lane()]));
      asm volatile("" : "+r"(target));  // as in copy_query (load_queries.cuh)
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(target), "l"(source),
                   "r"(is_there ? 4 : 0)
                   : "memory");
    }
    cutlass::arch::cpasync_barrier_arrive_noinc(
        reinterpret_cast<std::uint64_t*>(&shared_.full[place]));
  }

  const MlaDecodeParams& params_;
  Shared& shared_;
  const int warp_;
  L2Hint hint_ = L2Hint::EVICT_NORMAL;
  int tile_ = 0;
  RingPosition<SwapAbConfig::kItems> item_at_;
};

}  // namespace quire::cuda::sm90::mla_decode
