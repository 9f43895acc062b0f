// SPDX-License-Identifier: Apache-2.0
// Four warps: the first takes tiles off the schedule, tells everybody, and loads q and half of
// every block of K; the second the other half; the others do the same for V. They run ahead of the
// consumers, across tiles. Where K and V come from the source knows (sm90/flash_attention/prefill/kernel.cuh).
#pragma once

#include <cuda_fp8.h>

#include "cuda/common/pipeline/tma.cuh"
#include "cuda/common/prefill_attention/shared.cuh"
#include "cuda/common/thread/thread.cuh"

namespace quire::cuda {

// The blocks of K, or of V, as one of their two loading warps sees them: copies into the next
// stage, and, where the cache is e4m3, its half of the rows made f16 when they have landed.

// A copied block of e4m3 becomes the f16 block that products read, in place.
//
// A copied row holds 128 columns in 128 bytes, an f16 swizzle column 64 columns in as many. Rows stand where
// the second of their two swizzle columns will (or the only one), row over row: whoever has read a whole row
// may write it, and no other row is touched.

// 16 e4m3 into 16 f16.
__device__ inline void widen(const uint4& from, uint4 (&to)[2]) {
  const auto pair = [](std::uint32_t word, int half) {
    const __half2_raw pair = __nv_cvt_fp8x2_to_halfraw2(
        static_cast<__nv_fp8x2_storage_t>(word >> (16 * half)), __NV_E4M3);
    return static_cast<std::uint32_t>(pair.x) | static_cast<std::uint32_t>(pair.y) << 16;
  };
  to[0] = make_uint4(pair(from.x, 0), pair(from.x, 1), pair(from.y, 0), pair(from.y, 1));
  to[1] = make_uint4(pair(from.z, 0), pair(from.z, 1), pair(from.w, 0), pair(from.w, 1));
}

// By one of two warps: half of the rows, four at a time, eight lanes on each.
template <PrefillConfig kConfig, int kSwizzleColumns>
__device__ inline void convert_block(std::byte* block, int half) {
  constexpr int kBatch = 4;
  constexpr int kRows = kConfig.block_keys / 2;
  constexpr int kCopied = (kSwizzleColumns + 1) / 2;
  static_assert(kRows % (4 * kBatch) == 0);
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const int chunk = lane % 8;
  const bool is_high = chunk >= 4;
#pragma unroll 1
  for (int first = half * kRows; first < (half + 1) * kRows; first += 4 * kBatch) {
#pragma unroll 1
    for (int copied = 0; copied < kCopied; ++copied) {
      const std::byte* rows =
          block + kConfig.copied_swizzle_column(copied, kCopied, kSwizzleColumns) *
                      PrefillShared<kConfig>::kSwizzleColumnBytes;
      uint4 raw[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const int row = first + 4 * k + lane / 8;
        raw[k] = *reinterpret_cast<const uint4*>(rows + row * kRowBytes + (chunk ^ (row % 8)) * 16);
      }
      __syncwarp();
      const int swizzle_column = 2 * copied + (is_high ? 1 : 0);
      std::byte* to = block + swizzle_column * PrefillShared<kConfig>::kSwizzleColumnBytes;
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const int row = first + 4 * k + lane / 8;
        uint4 wide[2];
        widen(raw[k], wide);
        if (swizzle_column >= kSwizzleColumns) continue;
        // The upper four lanes write their second half first: all eight then hit different banks.
        std::byte* at = to + row * kRowBytes;
        const int vector = 2 * (chunk % 4);
        *reinterpret_cast<uint4*>(at + ((vector + (is_high ? 1 : 0)) ^ (row % 8)) * 16) =
            is_high ? wide[1] : wide[0];
        *reinterpret_cast<uint4*>(at + ((vector + (is_high ? 0 : 1)) ^ (row % 8)) * 16) =
            is_high ? wide[0] : wide[1];
      }
    }
  }
  cutlass::arch::fence_view_async_shared();
  __syncwarp();
}

// Whether copied blocks become f16.
enum class Conversion : std::uint8_t { none, to_f16 };

template <PrefillConfig kConfig, Conversion kConversion, int kSwizzleColumns, int kStages>
class StageLoad {
 public:
  using Stage = std::byte[kSwizzleColumns * PrefillShared<kConfig>::kSwizzleColumnBytes];

  __device__ StageLoad(Stage* stages, RingBarriers<kStages>& ring, EmptyBarrier* ready, int half)
      : stages_(stages), ring_(ring), ready_(ready), half_(half) {}

  // copy(stage, block, full): starts this warp's copies of a block.
  template <typename Copy> __device__ void load(const Copy& copy) {
    // While consumers still need the next stage, the block before it has time to be converted.
    if (kConversion == Conversion::to_f16 && is_pending_ && !is_empty()) convert();
    ring_.wait_empty(at_);
    copy(at_.stage, stages_[at_.stage], ring_.full[at_.stage]);
    convert();
    is_pending_ = true;
    at_.advance();
  }

  // Converts the block that has been copied last. Before waiting for anything that consumers do.
  __device__ void convert() {
    if constexpr (kConversion == Conversion::to_f16) {
      if (!is_pending_) return;
      is_pending_ = false;
      ring_.wait_full(convert_at_);
      convert_block<kConfig, kSwizzleColumns>(stages_[convert_at_.stage], half_);
      ready_[convert_at_.stage].arrive();
      convert_at_.advance();
    }
  }

 private:
  __device__ bool is_empty() const {
    return __shfl_sync(0xffffffff, ring_.empty[at_.stage].test_wait(at_.phase ^ 1), 0);
  }

  Stage* stages_;
  RingBarriers<kStages>& ring_;
  EmptyBarrier* ready_;
  const int half_;
  bool is_pending_ = false;
  RingPosition<kStages> at_;
  RingPosition<kStages> convert_at_;
};

// Rows of V behind the sequence's end, in its last page, may hold anything, and 0 · NaN is NaN.

// By a warpgroup: rows first … of a block, in its columns of V. Every consumer writes the zeros for itself; others
// of the same columns write the same.
template <PrefillConfig kConfig> __device__ inline void zero_values(std::byte* block, int first) {
  constexpr int kChunks = kRowBytes / 16;
#pragma unroll 1
  for (int swizzle_column = 0;
       swizzle_column < kConfig.value_swizzle_columns() / kConfig.column_groups; ++swizzle_column) {
    auto* chunks = reinterpret_cast<uint4*>(
        block + swizzle_column * PrefillShared<kConfig>::kSwizzleColumnBytes);
#pragma unroll 1
    for (int chunk = first * kChunks + static_cast<int>(threadIdx.x % 128);
         chunk < kConfig.block_keys * kChunks; chunk += 128) {
      chunks[chunk] = uint4{};
    }
  }
}

template <PrefillConfig kConfig, typename Source> class PrefillLoad {
 public:
  using Shared = PrefillShared<kConfig>;
  using BlockPart = typename Source::BlockPart;
  static constexpr Conversion conversion(bool converts) {
    return converts ? Conversion::to_f16 : Conversion::none;
  }
  using KeyLoad = StageLoad<kConfig, conversion(kConfig.converts_keys()),
                            kConfig.key_swizzle_columns(), kConfig.key_stages>;
  using ValueLoad = StageLoad<kConfig, conversion(kConfig.converts_values()),
                              kConfig.value_swizzle_columns(), kConfig.value_stages>;

  __device__ PrefillLoad(const PrefillParams& params, const typename Source::Params& source,
                         Shared& shared, int half)
      : params_(params), source_(source, half), shared_(shared), half_(half) {}

  // Tiles, q and keys.
  __device__ void lead() {
    KeyLoad keys(shared_.keys, shared_.key_ring, shared_.keys_ready, half_);
    PrefillSchedule<kConfig> schedule(params_);
    for (PrefillTile tile = schedule.next(); publish(tile);) {
      BlockPart part = source_.find(tile, tile.end_block - 1);
      PrefillTile following{.sequence = -1};
      for (int block = tile.end_block - 1; block >= tile.first_block; --block) {
        const BlockPart next = source_.find(tile, block - 1);  // arrives while this one waits
        load_keys(keys, part);
        if (block == tile.end_block - 1) {
          keys.convert();
          load_queries(tile);  // behind the keys: its place may be taken by the tile before
          if constexpr (kConfig.finds_tiles_early()) following = schedule.next();
        }
        part = next;
      }
      keys.convert();
      if constexpr (!kConfig.finds_tiles_early()) following = schedule.next();
      tile = following;
    }
  }

  __device__ void load_keys() {
    KeyLoad keys(shared_.keys, shared_.key_ring, shared_.keys_ready, half_);
    for (PrefillTile tile = next_tile(); tile.sequence >= 0; tile = next_tile()) {
      BlockPart part = source_.find(tile, tile.end_block - 1);
      for (int block = tile.end_block - 1; block >= tile.first_block; --block) {
        const BlockPart next = source_.find(tile, block - 1);
        load_keys(keys, part);
        part = next;
      }
      keys.convert();
    }
  }

  __device__ void load_values() {
    ValueLoad values(shared_.values, shared_.value_ring, shared_.values_ready, half_);
    for (PrefillTile tile = next_tile(); tile.sequence >= 0; tile = next_tile()) {
      BlockPart part = source_.find(tile, tile.end_block - 1);
      for (int block = tile.end_block - 1; block >= tile.first_block; --block) {
        const BlockPart next = source_.find(tile, block - 1);
        load_values(values, part);
        part = next;
      }
      values.convert();
    }
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }

  // False at the end of the schedule, which everybody is told too.
  __device__ bool publish(const PrefillTile& tile) {
    shared_.tile_ring.wait_empty(tile_at_);
    if (lane() == 0) {
      shared_.tiles[tile_at_.stage] = tile;
      shared_.tile_ring.full[tile_at_.stage].arrive();
    }
    tile_at_.advance();
    return tile.sequence >= 0;
  }
  __device__ PrefillTile next_tile() { return shared_.take_tile(tile_at_); }

  __device__ void load_queries(const PrefillTile& tile) {
#pragma unroll
    for (int row = 0; row < kConfig.cta_rows(); row += kConfig.part_rows()) {
      RingBarriers<kConfig.q_buffers>& ring = shared_.q_ring(row);
      ring.wait_empty(q_at_);
      if (lane() == 0) load_query_part(tile, row, ring.full[q_at_.stage]);
      __syncwarp();
    }
    q_at_.advance();
  }
  // `row`: the part's first, of the CTA's.
  __device__ void load_query_part(const PrefillTile& tile, int row, FullBarrier& full) {
    const int heads_log2 = params_.tile_heads_log2;
    const int tile_row = rank_in_cluster<kConfig.cluster>() * kConfig.cta_rows() + row;
    const int head = (tile.head_tile << heads_log2) + (tile_row & ((1 << heads_log2) - 1));
    const int token = tile.first_row + tile.first_token + (tile_row >> heads_log2);
    full.arrive_and_expect_tx(sizeof(shared_.q[0]) / kConfig.q_parts);
    for (int swizzle_column = 0; swizzle_column < kConfig.query_swizzle_columns();
         ++swizzle_column) {
      const BoxLoad load{
          .map = &params_.q,
          .shared = &shared_.q[q_at_.stage]
                              [swizzle_column * Shared::kQuerySwizzleColumnBytes + row * kRowBytes],
          .full = &full,
          .hint = L2Hint::EVICT_FIRST};
      load_box(load, swizzle_column * PrefillConfig::kSwizzleColumnWidth, head, token);
    }
  }

  __device__ void load_keys(KeyLoad& keys, const BlockPart& part) {
    const std::uint32_t holes = source_.holes(part);
    keys.load([&](int at, std::byte* stage, FullBarrier& full) {
      if (half_ == 0 && lane() == 0) shared_.holes[at] = holes;
      announce(full, Shared::kCopiedKeyBytes);
      source_.load_keys(part, stage, full);
    });
  }
  __device__ void load_values(ValueLoad& values, const BlockPart& part) {
    values.load([&](int, std::byte* stage, FullBarrier& full) {
      announce(full, Shared::kCopiedValueBytes);
      source_.load_values(part, stage, full);
    });
  }
  // By the first half, the bytes of both. The other's may land before: the barrier's phase cannot
  // end without this arrival, and bytes are counted with a sign.
  __device__ void announce(FullBarrier& full, int bytes) {
    if (half_ == 0 && lane() == 0) full.arrive_and_expect_tx(bytes);
    __syncwarp();
  }

  const PrefillParams& params_;
  const Source source_;
  Shared& shared_;
  const int half_;
  RingPosition<kConfig.q_buffers> q_at_;
  RingPosition<Shared::kTileRing> tile_at_;
};

}  // namespace quire::cuda
