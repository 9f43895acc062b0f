// SPDX-License-Identifier: Apache-2.0
// Four warps: walk the block's part of the work and have TMA bring 16 rows of every tile
// each. How rows stand then: shared.cuh.
#pragma once

#include "cuda/common/pipeline/tma.cuh"
#include "cuda/common/rows/vec8.cuh"
#include "cuda/common/softmax/softmax.cuh"
#include "cuda/common/thread/warp_reduce.cuh"
#include "cuda/sm90/mla_decode/latent/shared.cuh"
#include "cuda/sm90/mla_decode/params.h"
#include "cuda/sm90/mla_decode/swap_ab/shared.cuh"

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
    WorkSplit first;
    const bool has_first = first_split(params_.schedule, part.cuts, part.place, block, first);
    if (has_first) ask_first(part.place, first);
    WorkWalk walk(params_.batch, params_.schedule, part.cuts, part.place, block);
    for (WorkSplit split; walk.next(split);) {
      const SequenceWork& work = walk.work();
      if (tile_ > 0 || !has_first) begin_work_tile(work, split, walk.sequence());
      load_work_tile(work, split, walk.sequence());
      if (warp_ == 0) publish_split_count(params_, block, work, split, walk.sequence());
    }
    publish({});
  }

 private:
  static constexpr int kKeys = SwapAbConfig::kUnitKeys;
  // Boxes of whole rows, and as wide as the widest; otherwise in swizzle columns.
  static constexpr bool kIsSpaced = kConfig.kind == SwapAbKind::fp8_block;
  // In a tensor of their own.
  static constexpr bool kMayHaveScales = kConfig.kind == SwapAbKind::fp8;
  // Below so many tiles of the batch, rows are to be evicted first. Measured after 256 MiB were written, 16
  // heads, evicted first against not: bf16 322 and 306 µs (batch 128, 8 192 keys), e4m3 in rows of 656
  // bytes 193 and 191, but 109 and 110 (4 096 keys), 66 and 70 (batch 64).
  static constexpr int kManyTiles =
      kConfig.is_fp8() ? 12 * 1024 : (240 << 20) / (kBlockKeys * 1152);

  // A block's first tiles are asked for one after another. All at once, the first would come with the
  // last, and the queries behind them: what all blocks have room for takes memory 6 µs.
  static constexpr int kFirstTiles = kConfig.units / SwapAbConfig::kTileUnits + 1;

  // A place is not always the same warp's, and a barrier's parity does not tell the round that a warp waits for from the
  // second before it: no warp may ask for a place whose unit before is still to be loaded by a late one. With room for two
  // tiles that follows from the order in which tiles are given back, once there is one to give back. With less, a
  // tile's other units may still be read when its last one is given back: the four always go on together.
  static constexpr bool kPlacesMove = kConfig.units % SwapAbConfig::kTileUnits != 0;
  static constexpr bool kIsInStep = kConfig.units < 2 * SwapAbConfig::kTileUnits;

  // Where 16 keys of a page stand.
  struct Found {
    unsigned page = 0;
    int row = 0;
    int live = 0;  // the first ones are the sequence's and on a page
    unsigned scale_page = 0;
  };

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static int cluster() { return static_cast<int>(blockIdx.x / kSharing); }
  // Of a work tile, this block's.
  __device__ static int first_row() {
    return static_cast<int>(blockIdx.x % kSharing) * kConfig.rows;
  }

  __device__ void publish(const LatentWorkTile& work_tile) {
    if (warp_ == 0 && lane() == 0) {
      shared_.work_tile_ring.wait_empty(work_tile_at_);
      shared_.work_tiles[work_tile_at_.stage] = work_tile;
      shared_.work_tile_ring.full[work_tile_at_.stage].arrive();
    }
    __syncwarp();
    work_tile_at_.advance();
  }

  // Keys from `key` on, of which `count` are the sequence's. A cursor made anew takes no registers in between.
  __device__ Found find(int sequence, int key, int count) const {
    const PageCursor pages(params_.pages.kv.pages, sequence);
    const PageSlot slot = pages.find(key, key + count);
    Found found{.page = pages.num_pages(), .row = slot.row};
    if (slot.column < 0) return found;
    found.page = min(slot.page, pages.num_pages());
    if (kMayHaveScales && params_.format.token_scales != nullptr) {
      found.scale_page = PageCursor(params_.format.scale_pages, sequence).page(slot.column);
    }
    if (found.page < pages.num_pages()) found.live = min(count, kKeys);
    return found;
  }

  // Its first key, of those that this warp loads.
  __device__ int first_key(const SequenceWork& work, const WorkSplit& split) const {
    return (work.first_block + split.begin) * kBlockKeys + warp_ * kKeys;
  }

  __device__ void begin_work_tile(const SequenceWork& work, const WorkSplit& split, int sequence) {
    const LatentWorkTile work_tile = describe_work_tile(params_.batch, work, split, sequence);
    if constexpr (kConfig.rows <= 32) {
      if (warp_ == 0 && lane() < kConfig.rows) prefetch_query(params_.attend, work_tile, lane());
    } else {
      const int row = 32 * warp_ + lane();
      if (row < kConfig.rows) prefetch_query(params_.attend, work_tile, first_row() + row);
    }
    publish(work_tile);
  }

  __device__ void ask_first(const WorkPlace& place, const WorkSplit& split) {
    const int key = first_key(place.work, split);
    const Found found = find(place.sequence, key, place.work.num_keys - key);
    begin_work_tile(place.work, split, place.sequence);
    load_unit(found);
  }

  // Tables are looked up a tile ahead.
  __device__ void load_work_tile(const SequenceWork& work, const WorkSplit& split, int sequence) {
    const int end = work.num_keys;
    int key = first_key(work, split);
    Found now = find(sequence, key, end - key);
    for (int tile = split.begin; tile < split.end; ++tile, ++tile_) {
      key += kBlockKeys;
      const Found next = find(sequence, key, end - key);
      if (tile_ > 0 || params_.schedule.is_invariant) load_unit(now);
      now = next;
    }
  }

  // A page that is not there lies outside the map: zeros.
  __device__ void load_unit(const Found& found) {
    const UnitPlace<kConfig> at(tile_, warp_);
    if (tile_ > 0 && tile_ < kFirstTiles) {
      const UnitPlace<kConfig> before(tile_ - 1, warp_);
      shared_.full[before.place].wait(before.phase);
      if constexpr (kPlacesMove && !kIsInStep) WorkScan::sync();
    }
    if constexpr (kIsInStep) WorkScan::sync();
    shared_.empty[at.place].wait(at.phase ^ 1);
    if (lane() == 0) {
      shared_.live[at.place] = found.live;
      shared_.full[at.place].arrive_and_expect_tx(kIsSpaced ? sizeof(shared_.units[0])
                                                            : kKeys * params_.pages.kv.row_bytes);
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
    if constexpr (kMayHaveScales) {
      if (params_.format.token_scales != nullptr) copy_scales(found, at.place);
    }
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
      const bool is_there =
          found.scale_page < format.scale_pages.num_pages() && lane() < found.live;
      const float* source = format.token_scales;
      if (is_there) {
        source += found.scale_page * format.scale_page_stride +
                  (found.row + lane()) * format.scale_token_stride;
      }
      auto target =
          static_cast<std::uint32_t>(__cvta_generic_to_shared(&shared_.scales[place][lane()]));
      asm volatile("" : "+r"(target));  // as in copy_query (latent/shared.cuh)
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
  RingPosition<SwapAbConfig::kWorkTiles> work_tile_at_;
};

// A work tile's queries into shared memory. For e4m3 rows they become f16, each row times a power of two
// that brings its largest number into [2^13, 2^14): bf16 has no more digits than f16, so what is lost
// stands 2^38 below it.

// Shared: SwapAbShared, or another that has as much of its members.
template <SwapAbConfig kConfig, typename Shared = SwapAbShared<kConfig>> class LoadTileQueries {
 public:
  // `first_row`: of a work tile, this block's.
  __device__ LoadTileQueries(const LatentParams& params, Shared& shared, bool has_fp8_rope,
                             int first_row = 0)
      : params_(params), shared_(shared), has_fp8_rope_(has_fp8_rope), first_row_(first_row) {}

  // By all kWarps warps of the scores; rows beyond the work tile's are zeros. `factors` [rows]: from a score to powers
  // of two, of e4m3 rows.
  template <int kWarps = SwapAbConfig::kWarps>
  __device__ void load(const LatentWorkTile& work_tile, int warp, float* factors) const {
    constexpr int kWarpRows = kConfig.rows / kWarps;
    // For two that are scaled few rows have no registers.
    constexpr int kAtOnce = kIsScaled ? (kWarpRows < 8 ? 1 : 2) : kWarpRows;
#pragma unroll 1
    for (int first = 0; first < kWarpRows; first += kAtOnce) {
      uint4 chunks[kAtOnce][kChunks];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) fetch(work_tile, warp + (first + i) * kWarps, chunks[i]);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) place(warp + (first + i) * kWarps, chunks[i], factors);
    }
    cutlass::arch::fence_view_async_shared();
  }

 private:
  static constexpr bool kIsScaled = kConfig.is_fp8();
  static constexpr int kRowChunks = (SwapAbConfig::kBlocks + 1) * 8;  // of 16 bytes, 8 columns
  static constexpr int kChunks = (kRowChunks + 31) / 32;              // of a lane

  __device__ static int lane() {
    return static_cast<int>(threadIdx.x % 32);
  }

  __device__ void fetch(const LatentWorkTile& work_tile, int own, uint4 (&chunks)[kChunks]) const {
    const int row = first_row_ + own;
    const std::int64_t token = work_tile.first_token + row / params_.heads;
    const std::byte* source = params_.queries.data + token * params_.queries.token_stride_bytes +
                              row % params_.heads * params_.queries.head_stride_bytes;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int chunk = 32 * i + lane();
      const bool is_there = row < work_tile.rows && chunk < kRowChunks;
      chunks[i] = is_there ? *reinterpret_cast<const uint4*>(source + chunk * 16) : uint4{};
    }
  }

  __device__ void place(int row, const uint4 (&chunks)[kChunks], float* factors) const {
    const int raised = kIsScaled ? powers_to_raise(chunks) : 0;
    const float factor = power_of_two(raised);
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int chunk = 32 * i + lane();
      if (chunk < kRowChunks) store(row, chunk, chunks[i], factor);
    }
    if (kIsScaled && lane() == 0) {
      factors[row] = params_.to_log2 * power_of_two(-raised);
    }
  }

  // Nothing to scale where all are zeros; infinities and NaN stay what they are.
  __device__ static int powers_to_raise(const uint4 (&chunks)[kChunks]) {
    float top = 0.0F;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      top = fmaxf(top, fmaxf(fmaxf(largest(chunks[i].x), largest(chunks[i].y)),
                             fmaxf(largest(chunks[i].z), largest(chunks[i].w))));
    }
    top = warp_max(top);
    return top > 0.0F ? max(-126, min(126, 13 - exponent_of(top))) : 0;
  }

  __device__ static float low(std::uint32_t two) {
    return __uint_as_float(two << 16);
  }
  __device__ static float high(std::uint32_t two) {
    return __uint_as_float(two & 0xffff0000U);
  }
  __device__ static float largest(std::uint32_t two) {
    return fmaxf(fabsf(low(two)), fabsf(high(two)));
  }
  __device__ static int exponent_of(float positive) {
    return static_cast<int>(__float_as_uint(positive) >> 23) - 127;
  }
  __device__ static float power_of_two(int exponent) {
    return __uint_as_float(static_cast<std::uint32_t>(exponent + 127) << 23);
  }

  __device__ void store(int row, int chunk, const uint4& vec8, float factor) const {
    std::byte* swizzle_column = shared_.q[chunk / 8];
    if (!kIsScaled || (chunk / 8 == SwapAbConfig::kBlocks && !has_fp8_rope_)) {
      *reinterpret_cast<uint4*>(swizzle_column + swizzle_column_offset(row, chunk % 8)) =
          kIsScaled ? scale_vec8(vec8, factor) : vec8;
      return;
    }
    const auto f16 = [factor](std::uint32_t two) {
      return pack_pair<DType::f16>(low(two) * factor, high(two) * factor);
    };
    // Of 16 columns, pairs 0, 2, 4, 6 stand in the first chunk and pairs 1, 3, 5, 7 in the second.
    const int pair = chunk % 8 / 2 * 2;
    const int byte = chunk % 2 * 8;
    *reinterpret_cast<uint2*>(swizzle_column + swizzle_column_offset(row, pair) + byte) = {
        f16(vec8.x), f16(vec8.z)};
    *reinterpret_cast<uint2*>(swizzle_column + swizzle_column_offset(row, pair + 1) + byte) = {
        f16(vec8.y), f16(vec8.w)};
  }

  const LatentParams& params_;
  Shared& shared_;
  const bool has_fp8_rope_;
  const int first_row_;
};

}  // namespace quire::cuda::sm90::mla_decode
