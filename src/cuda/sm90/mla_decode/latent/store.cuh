// SPDX-License-Identifier: Apache-2.0
// A finished work tile's rows, from registers: to the output, or as a split to the workspace.
#pragma once

#include "cuda/common/prefill_attention/epilogue.cuh"
#include "cuda/common/thread/warp_reduce.cuh"
#include "cuda/sm90/mla_decode/latent/shared.cuh"
#include "cuda/sm90/mla_decode/params.h"

namespace quire::cuda::sm90::mla_decode {

// Which part of a work tile's rows a thread stores.
struct StorePlace {
  int row;            // the thread's first; the second stands 8 below it
  int column;         // the warpgroup's first
  bool stores_stats;  // one of those that have the same rows
};

template <int kSums>
__device__ inline void store_split(const LatentSplits& splits, const LatentWorkTile& work_tile,
                                   const StorePlace& place, const RowStats& stats,
                                   const float (&sums)[kSums]) {
  const auto lane = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = place.row + 8 * i;
    if (row >= work_tile.rows) continue;
    const std::int64_t at = work_tile.slot * splits.rows + row;
    auto* out = reinterpret_cast<float2*>(splits.sums + at * LatentConfig::kLatent + place.column);
#pragma unroll
    for (int j = 0; j < kSums / 4; ++j) {
      out[4 * j + lane] = {sums[4 * j + 2 * i], sums[4 * j + 2 * i + 1]};
    }
    if (place.stores_stats && lane == 0) splits.stats[at] = {stats.max[i], stats.sum[i]};
  }
}

template <DType kDType, int kSums>
__device__ inline void store_output(const LatentParams& params, const LatentWorkTile& work_tile,
                                    const StorePlace& place, const RowStats& stats,
                                    const float (&sums)[kSums]) {
  const AttendOutput& outputs = params.outputs;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = place.row + 8 * i;
    const bool is_stored = row < work_tile.rows;
    const std::int64_t token = work_tile.first_token + row / params.heads;
    const int head = row % params.heads;
    const RowEnd end = is_stored ? end_row(outputs, head, stats.max[i], stats.sum[i]) : RowEnd{};
    if (outputs.lse != nullptr && is_stored && place.stores_stats && threadIdx.x % 4 == 0) {
      outputs.lse[token * outputs.lse_token_stride + head * outputs.lse_head_stride] = end.lse;
    }
    std::byte* out = outputs.out + token * outputs.token_bytes + head * outputs.head_bytes +
                     bytes_for(kDType, place.column);
    store_row<kDType>(sums, i, end.factor, is_stored ? out : nullptr);
  }
}

template <DType kDType, int kSums>
__device__ inline void store_work_tile(const LatentParams& params, const LatentWorkTile& work_tile,
                                       const StorePlace& place, const RowStats& stats,
                                       const float (&sums)[kSums]) {
  if (work_tile.slot >= 0) {
    store_split(params.splits, work_tile, place, stats, sums);
  } else {
    store_output<kDType>(params, work_tile, place, stats, sums);
  }
}

// Splits of a work tile become rows of the output, in the order of the keys: a warp for 128 columns of a
// row, or for all 512, or a block for 128.

// Where the splits of a work tile stand in the workspace.
struct SplitSlots {
  int count = 0;  // below 2: nothing to merge
  std::int64_t first = 0;
  std::int64_t second = 0;
  int step = 1;  // from there on

  __device__ std::int64_t at(int split) const {
    return split == 0 ? first : second + std::int64_t{split - 1} * step;
  }
};

struct MergedStats {
  float max = -INFINITY;
  float sum = 0.0F;
};

__device__ inline MergedStats merge_stats(const LatentSplits& splits, const SplitSlots& slots,
                                          int row) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  constexpr int kAtOnce = 5;  // loads of a lane: as many splits as there are multiprocessors
  MergedStats merged;
  for (int first = 0; first < slots.count; first += 32 * kAtOnce) {
    float2 stats[kAtOnce];
    float highest = merged.max;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int split = first + 32 * i + lane;
      stats[i] = {-INFINITY, 0.0F};
      if (split < slots.count) stats[i] = splits.stats[slots.at(split) * splits.rows + row];
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) highest = fmaxf(highest, stats[i].x);
    const float top = warp_max(highest);
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) sum += stats[i].y * rebased(stats[i].x, top);
    merged.sum = merged.sum * rebased(merged.max, top) + warp_sum(sum);
    merged.max = top;
  }
  return merged;
}

// Columns 128c + 4 · lane … + 3 of a row, for kChunks values of c from `chunk` on, of kAhead splits that are
// on their way at a time, every kStep-th.
template <int kChunks, int kAhead, int kStep = 1> class SplitBatch {
 public:
  __device__ SplitBatch(const LatentSplits& splits, const SplitSlots& slots, int row, int chunk)
      : splits_(splits),
        slots_(slots),
        row_(row),
        column_(chunk * 128 + static_cast<int>(threadIdx.x % 32) * 4) {}

  // Splits from `first` on.
  __device__ void fetch(int first) {
    first_ = first;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const std::int64_t place =
          slots_.at(min(first + kStep * i, slots_.count - 1)) * splits_.rows + row_;
      const float* source = splits_.sums + place * LatentConfig::kLatent + column_;
      tops_[i] = splits_.stats[place].x;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        values_[i][c] = *reinterpret_cast<const float4*>(source + 128 * c);
      }
    }
  }
  // To the sums, which are relative to exp2(`max`).
  __device__ void add_to(float4 (&sums)[kChunks], float max) const {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const float weight = first_ + kStep * i < slots_.count ? rebased(tops_[i], max) : 0.0F;
      if (weight == 0.0F) continue;  // a split without keys, or one read twice
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        sums[c].x = fmaf(values_[i][c].x, weight, sums[c].x);
        sums[c].y = fmaf(values_[i][c].y, weight, sums[c].y);
        sums[c].z = fmaf(values_[i][c].z, weight, sums[c].z);
        sums[c].w = fmaf(values_[i][c].w, weight, sums[c].w);
      }
    }
  }

 private:
  const LatentSplits& splits_;
  const SplitSlots& slots_;
  const int row_;
  const int column_;
  int first_ = 0;
  float4 values_[kAhead][kChunks];
  float tops_[kAhead];
};

// Where a row of a work tile goes: row `row`, whose first is token `first_token` of q.
struct RowTarget {
  std::byte* out;
  float* lse;  // or null
  RowEnd end;

  __device__ RowTarget(const LatentParams& params, std::int64_t first_token, int row,
                       const MergedStats& stats) {
    const AttendOutput& outputs = params.outputs;
    const std::int64_t token = first_token + row / params.heads;
    const int head = row % params.heads;
    end = end_row(outputs, head, stats.max, stats.sum);
    out = outputs.out + token * outputs.token_bytes + head * outputs.head_bytes;
    lse = outputs.lse == nullptr
              ? nullptr
              : outputs.lse + token * outputs.lse_token_stride + head * outputs.lse_head_stride;
  }

  // Columns 128 · chunk + 4 · lane … + 3, by a warp.
  template <DType kDType> __device__ void store(int chunk, const float4& sum) const {
    const auto lane = static_cast<int>(threadIdx.x % 32);
    reinterpret_cast<uint2*>(out)[chunk * 32 + lane] = {
        pack_pair<kDType>(sum.x * end.factor, sum.y * end.factor),
        pack_pair<kDType>(sum.z * end.factor, sum.w * end.factor)};
    if (lse != nullptr && chunk == 0 && lane == 0) *lse = end.lse;
  }
};

// `first_token`: of q, of the work tile's first row.
template <DType kDType, int kChunks, int kAhead>
__device__ inline void merge_row(const LatentParams& params, const SplitSlots& slots,
                                 std::int64_t first_token, int row, int chunk) {
  SplitBatch<kChunks, kAhead> batch(params.splits, slots, row, chunk);
  batch.fetch(0);  // beside the statistics
  const MergedStats stats = merge_stats(params.splits, slots, row);
  const RowTarget target(params, first_token, row, stats);
  float4 sums[kChunks] = {};
  batch.add_to(sums, stats.max);
  for (int first = kAhead; first < slots.count; first += kAhead) {
    batch.fetch(first);
    batch.add_to(sums, stats.max);
  }
#pragma unroll
  for (int c = 0; c < kChunks; ++c) target.store<kDType>(chunk + c, sums[c]);
}

// What the warps of a block have of 128 columns.
template <int kWarps> using WarpSums = float4[kWarps][32];

// The same for 128 columns of a row and many splits, by a block: each warp has every kWarps-th split, so that all
// of them are on their way at once. `parts`: not those of the block's row before.
template <DType kDType, int kWarps>
__device__ inline void merge_by_block(const LatentParams& params, const SplitSlots& slots,
                                      std::int64_t first_token, int row, int chunk,
                                      WarpSums<kWarps>& parts) {
  constexpr int kAhead = 8;
  const auto warp = static_cast<int>(threadIdx.x) / 32;
  const auto lane = static_cast<int>(threadIdx.x) % 32;
  SplitBatch<1, kAhead, kWarps> batch(params.splits, slots, row, chunk);
  batch.fetch(warp);
  const MergedStats stats = merge_stats(params.splits, slots, row);
  float4 sums[1] = {};
  batch.add_to(sums, stats.max);
  for (int first = warp + kAhead * kWarps; first < slots.count; first += kAhead * kWarps) {
    batch.fetch(first);
    batch.add_to(sums, stats.max);
  }
  parts[warp][lane] = sums[0];
  __syncthreads();
  if (warp != 0) return;
  float4 sum{};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const float4 part = parts[w][lane];
    sum.x += part.x;
    sum.y += part.y;
    sum.z += part.z;
    sum.w += part.w;
  }
  RowTarget(params, first_token, row, stats).store<kDType>(chunk, sum);
}

}  // namespace quire::cuda::sm90::mla_decode
