// SPDX-License-Identifier: Apache-2.0
// Attention of few new tokens per sequence over long caches: bound by the bytes of K and V.
//
//   warps 0 – 7    attend  16 keys of a stage each, or a quarter of their columns; rows are tokens × heads of
//                          one KV head
//   warps 8 – 11   load    walk the CTA's part of the work, copy rows of pages into the ring
//
//   ring       full: every loading thread's copies   empty: the warps that took the stage
//   work tile ring  full: the same, and the description   empty: all eight warps, queries in registers
#pragma once

#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/thread.cuh"
#include "cuda/sm90/flash_attention/decode/attend_rows.cuh"
#include "cuda/sm90/flash_attention/decode/epilogue.cuh"
#include "cuda/sm90/flash_attention/decode/params.h"
#include "cuda/sm90/flash_attention/decode/roles/load.cuh"

namespace quire::cuda::sm90::flash_attention {

// Eight warps: scores, softmax and values of 16 keys of a stage each, independently of each other
// until the work tile ends; of wide heads, the four warps of a set share 16 keys and add up their scores.

template <DecodeConfig kConfig> class AttendRole {
 public:
  __device__ AttendRole(const DecodeParams& params, DecodeShared<kConfig>& shared, int warp)
      : params_(params), shared_(shared), warp_(warp) {}

  __device__ void run() {
    RowSums<kConfig> sums;
    for (RingPosition<kConfig.work_tiles> work_tiles_at;; work_tiles_at.advance()) {
      shared_.work_tile_ring.wait_full(work_tiles_at);
      const DecodeWorkTile work_tile = shared_.work_tile[work_tiles_at.stage];
      if (work_tile.end == work_tile.begin) return;
      queries_.load(shared_, work_tiles_at.stage, first_row(),
                    column_warp() * kConfig.warp_columns());
      release(shared_.work_tile_ring.empty[work_tiles_at.stage]);
      if constexpr (kConfig.dtype != DType::bf16) {
        if (params_.queries.dtype == DType::bf16) queries_.convert_from_bf16();
      }
      if constexpr (kConfig.is_fp8()) queries_.scale_by(params_.scales.of_keys(work_tile.kv_head));
      sums.clear();
      // Which set takes an even block depends on the work before. The sums are brought together by the
      // blocks' own numbers: their order must not.
      const bool is_swapped =
          kConfig.row_sets() == 1 && (work_tile.begin * kBlockStages + at_.stage) % 2 != 0;
      attend_work_tile(work_tile, sums);
      finish_work_tile(params_, shared_, work_tile, sums,
                       is_swapped ? warp_ ^ DecodeConfig::kSetWarps : warp_, phase_);
    }
  }

 private:
  static constexpr int kBlockStages = kBlockKeys / kConfig.keys();

  __device__ int set() const { return warp_ / DecodeConfig::kSetWarps; }
  __device__ int first_row() const {
    return kConfig.row_sets() > 1 ? set() * DecodeConfig::kTileRows : 0;
  }
  __device__ bool is_mine() const { return kConfig.row_sets() > 1 || at_.stage % 2 == set(); }

  __device__ static void release(EmptyBarrier& empty) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) empty.arrive();
  }

  // The set's warps have 16 keys of a stage each, or a share of the columns of the same.
  __device__ int column_warp() const { return warp_ % kConfig.column_warps; }
  __device__ int warp_key() const {
    return warp_ % DecodeConfig::kSetWarps / kConfig.column_warps * DecodeConfig::kWarpKeys;
  }
  // Where the warp's numbers begin in K or V of a stage.
  __device__ int warp_offset() const {
    constexpr int kSwizzleColumns = kConfig.swizzle_columns / kConfig.column_warps;
    return (column_warp() * kSwizzleColumns * kConfig.keys() + warp_key()) * 128;
  }

  __device__ void attend_work_tile(const DecodeWorkTile& work_tile, RowSums<kConfig>& sums) {
    const DecodeRowMask<kConfig> row_mask(params_, work_tile, first_row());
    const int end = work_tile.end * kBlockStages;
    for (int i = work_tile.begin * kBlockStages; i < end; ++i, at_.advance()) {
      if (!is_mine()) continue;
      const int block = i / kBlockStages;
      shared_.ring.wait_full(at_);
      attend_stage(row_mask, i * kConfig.keys() + warp_key(),
                   block >= work_tile.whole_begin && block < work_tile.whole_end, sums);
      release(shared_.ring.empty[at_.stage]);
    }
  }

  // The warp's keys of a stage. is_whole: every row sees every one of them, if its page is assigned.
  __device__ void attend_stage(const DecodeRowMask<kConfig>& row_mask, int first_key, bool is_whole,
                               RowSums<kConfig>& sums) {
    constexpr unsigned kAllMapped = 0xffff;
    const unsigned mapped = shared_.mapped_keys(at_.stage, warp_key());
    ScoreTile scores = score(shared_.keys(at_.stage) + warp_offset());
    if constexpr (kConfig.column_warps > 1) {
      add_up(scores);
      float ones[kConfig.halves()];
#pragma unroll
      for (float& one : ones) one = 1.0F;
      row_mask.scale(scores, ones, first_key);
    } else {
      row_mask.scale(scores, queries_.factor, first_key);
    }
    if (!is_whole || mapped != kAllMapped) row_mask.hide(scores, mapped, first_key);
    std::uint32_t weights[kConfig.halves()][2];
    sums.weigh(scores, weights);
    sums.add(weights, shared_.values(at_.stage) + warp_offset());
  }

  // Two chains of products, even and odd groups of columns: half the latency of one.
  __device__ ScoreTile score(const std::byte* keys) const {
    float parts[2][2][4] = {};
#pragma unroll
    for (int step = 0; step < kConfig.warp_columns() / 32; ++step) {
      std::uint32_t low[4];
      std::uint32_t high[4];
      load_key_operands<kConfig.dtype>(keys, kConfig.keys() * 128, step, low, high);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        WarpProduct<kConfig.dtype>::add(parts[i / 2][i % 2], queries_.words[2 * step + i / 2],
                                        low[i], high[i]);
      }
    }
    ScoreTile scores;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores.at[n][i] = parts[0][n][i] + parts[1][n][i];
    }
    return scores;
  }

  // Scores over the warp's own columns become those over all: each warp of the set adds up the four parts
  // in the same order, so that all come to the same bits, weights and maxima. Queries are divided by a
  // factor of each warp's own.
  __device__ void add_up(ScoreTile& scores) {
    constexpr int kBarrier = 2;
    const int lane = static_cast<int>(threadIdx.x % 32);
    auto& parts = shared_.partial_scores[set()][turn_];
    turn_ ^= 1;
#pragma unroll
    for (int half = 0; half < kConfig.halves(); ++half) {
      const float factor = queries_.factor[half];
      const auto part = [&](int n, int i) { return scores.at[n][2 * half + i] * factor; };
      parts[column_warp()][half][lane] = {part(0, 0), part(0, 1), part(1, 0), part(1, 1)};
    }
    cutlass::arch::NamedBarrier::sync(32 * DecodeConfig::kSetWarps, kBarrier + set());
#pragma unroll
    for (int half = 0; half < kConfig.halves(); ++half) {
      float4 sum = parts[0][half][lane];
#pragma unroll
      for (int warp = 1; warp < kConfig.column_warps; ++warp) {
        add_scaled(sum, parts[warp][half][lane], 1.0F);
      }
      scores.at[0][2 * half] = sum.x;
      scores.at[0][2 * half + 1] = sum.y;
      scores.at[1][2 * half] = sum.z;
      scores.at[1][2 * half + 1] = sum.w;
    }
  }

  const DecodeParams& params_;
  DecodeShared<kConfig>& shared_;
  int warp_;
  QueryRows<kConfig> queries_;
  RingPosition<kConfig.stages> at_;
  std::uint32_t phase_ = 0;  // of the staging of sums
  int turn_ = 0;             // of the buffers of partial scores
};

// Variant: a named type with a kConfig.
template <typename Variant>
__global__ void __launch_bounds__(DecodeConfig::kThreads + DecodeConfig::kLoadThreads, 1)
    decode_kernel(const __grid_constant__ DecodeParams params) {
  constexpr DecodeConfig kConfig = Variant::kConfig;
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<DecodeShared<kConfig>*>(memory);
  const int warp = warp_in_block();
  // The kernel that merges splits may take its place beside this one and wait there.
  cudaTriggerProgrammaticLaunchCompletion();
  if (threadIdx.x == 0) {
    shared.init();
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  if (warp >= DecodeConfig::kWarps) {
    cutlass::arch::warpgroup_reg_dealloc<DecodeConfig::kLoadRegisters>();
    LoadRole<kConfig>(params, shared).run();
  } else {
    cutlass::arch::warpgroup_reg_alloc<DecodeConfig::kAttendRegisters>();
    AttendRole<kConfig>(params, shared, warp).run();
  }
}

template <typename Variant> void launch_decode(const DecodeParams& params, cudaStream_t stream) {
  static_assert(sizeof(DecodeShared<Variant::kConfig>) <= 227 * 1024);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(params.schedule.blocks << params.work_lists.bits)),
      .block = dim3(DecodeConfig::kThreads + DecodeConfig::kLoadThreads),
      .shared_bytes = sizeof(DecodeShared<Variant::kConfig>)};
  launch(decode_kernel<Variant>, shape, stream, params);
}

}  // namespace quire::cuda::sm90::flash_attention
