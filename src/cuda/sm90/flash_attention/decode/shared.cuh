// SPDX-License-Identifier: Apache-2.0
// Shared memory of the decode kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/common/pipeline/ring.cuh"
#include "cuda/common/split_kv/find_work.cuh"

namespace quire::cuda::sm90::flash_attention {

// A split of a work tile as the warps that multiply see it. Key blocks and keys are absolute.
struct DecodeWorkTile {
  int begin;  // key blocks of the split; end == begin: there are no more work tiles
  int end;
  int whole_begin;  // key blocks that every row sees from end to end
  int whole_end;
  int first_key;  // that any row sees
  int last_key;   // one past it
  int num_keys;
  int first_token;  // row of q of row 0
  int position;     // of that token
  int cached;       // keys before the sequence's first new token
  int rows;         // in use
  int kv_head;
  long long slot;  // of the workspace; -1: the split is the whole work tile
};

// Products over each warp's own columns, as its lanes hold them. Two buffers, which the stages of a set
// take in turn: a warp writes one again only behind the barrier of the stage between, which the set's
// other warps reach when they have read it.
template <DecodeConfig kConfig> struct DecodePartialScores {
  alignas(16) float4
      partial_scores[DecodeConfig::kSets][2][kConfig.column_warps][kConfig.halves()][32];
};
// One warp has all columns.
template <DecodeConfig kConfig>
requires(kConfig.column_warps == 1) struct DecodePartialScores<kConfig> {
};

template <DecodeConfig kConfig> struct DecodeShared : DecodePartialScores<kConfig> {
  // K, then V: swizzle columns of keys × 128 bytes, swizzled.
  alignas(1024) std::byte stages[kConfig.stages][kConfig.stage_bytes()];
  // Swizzle columns of rows × 128 bytes, swizzled.
  alignas(1024)
      std::byte queries[kConfig.work_tiles][kConfig.query_swizzle_columns()][kConfig.rows * 128];
  // The warps' sums when a work tile ends. The stride shifts the banks of every second row by eight: a
  // warp stores eight columns of four such rows without conflicts.
  static constexpr int kSumStride = kConfig.warp_columns() + 4;
  alignas(16) float sums[DecodeConfig::kWarps][kConfig.staged_rows()][kSumStride];
  float2 stats[DecodeConfig::kWarps][kConfig.staged_rows()];  // (max, sum of weights)
  DecodeWorkTile work_tile[kConfig.work_tiles];
  WorkScanShared work_scan;
  // A bit per key: its page is assigned. One number for the neighbouring keys of a lane.
  static constexpr int kKeyGroups = kConfig.keys() / kConfig.lane_keys();
  alignas(8) std::uint16_t mapped[kConfig.stages][kKeyGroups];
  RingBarriers<kConfig.stages> ring;
  RingBarriers<kConfig.work_tiles> work_tile_ring;
  EmptyBarrier sums_read;  // by every warp, of the last work tile

  __device__ void init() {
    // Every loading thread when its copies have landed; the lane of each group of keys, and the thread
    // that describes the work tile, for what they stored themselves.
    ring.init(DecodeConfig::kLoadThreads + kKeyGroups,
              DecodeConfig::kSetWarps * kConfig.row_sets());
    work_tile_ring.init(DecodeConfig::kLoadThreads + 1, DecodeConfig::kWarps);
    sums_read.init(DecodeConfig::kWarps);
  }
  // Of the warp's 16 keys, which begin at warp_key.
  __device__ unsigned mapped_keys(int stage, int warp_key) const {
    constexpr int kGroups = DecodeConfig::kWarpKeys / kConfig.lane_keys();
    unsigned bits = 0;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      bits |= static_cast<unsigned>(mapped[stage][warp_key / kConfig.lane_keys() + group])
              << (group * kConfig.lane_keys());
    }
    return bits;
  }
  __device__ std::byte* keys(int stage) {
    return stages[stage];
  }
  __device__ std::byte* values(int stage) {
    return stages[stage] + kConfig.side_bytes();
  }
};

// 16 bytes from global to shared memory by any thread, asynchronously. CuTe's copy has no cache hint.

// What becomes of the lines in L2: as TMA encodes it.
enum class L2Policy : std::uint64_t {
  normal = 0x1000000000000000,
  evict_first = 0x12f0000000000000
};

__device__ inline void copy_async(void* target, const std::byte* source, L2Policy policy) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(target));
  asm volatile(
      "cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2;" ::"r"(address),
      "l"(source), "l"(static_cast<std::uint64_t>(policy))
      : "memory");
}
// `is_there` false: zeros, and `source` is not read.
__device__ inline void copy_async(void* target, const std::byte* source, bool is_there,
                                  L2Policy policy) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(target));
  const int bytes = is_there ? 16 : 0;
  asm volatile(
      "cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(address),
      "l"(source), "r"(bytes), "l"(static_cast<std::uint64_t>(policy))
      : "memory");
}

}  // namespace quire::cuda::sm90::flash_attention
