// SPDX-License-Identifier: Apache-2.0
// One CTA per row (token, head): a thread has four columns of every split. Launched beside the
// kernel that writes the splits, and waits for it.
#include "cuda/sm90/sparse_mla/params.h"

#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/warp_reduce.cuh"
#include "cuda/sm90/sparse_mla/config.h"
#include "cuda/sm90/sparse_mla/row_softmax.cuh"

namespace quire::cuda::sm90::sparse_mla {
namespace {

constexpr int kMergeThreads = SparseConfig::kLatent / 4;
constexpr int kLoadsAhead = 16;
static_assert(kMostSparseSplits <= 32 && kMostSparseSplits % kLoadsAhead == 0);

// What the splits of a row come to; by whole warps.
struct CombinedRow {
  float base;  // in powers of two
  float sum;
  float weight;  // of the split whose number the lane has; 0: it saw no key
};

// Split p of a row stands `step` lines after split p - 1.
struct SplitRows {
  std::int64_t first;
  int splits;

  __device__ std::int64_t row_of(int split) const {
    return first + std::int64_t{split} * SparseConfig::kHeads;
  }
};

// Code is run once here and each load waited for: a lane has one split, and looks at it once.
__device__ CombinedRow merge_stats(const float2* stats, const SplitRows& rows) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const float2 split = lane < rows.splits ? stats[rows.row_of(lane)] : float2{-INFINITY, 0.0F};
  const float base = warp_max(split.x);
  // A split without a key has no sum; one whose scores are NaN has a sum of NaN and no base.
  const float weight = split.x == -INFINITY ? 1.0F : exp2f(split.x - base);
  const bool is_seen = split.x != -INFINITY || split.y != 0.0F;
  return {.base = base, .sum = warp_sum(split.y * weight), .weight = is_seen ? weight : 0.0F};
}

// Four columns of some splits, from `first` on; past the last one that one again.
struct SplitColumns {
  float4 values[kLoadsAhead];

  __device__ void load(const SparseSplits& splits, const SplitRows& rows, int first) {
#pragma unroll
    for (int i = 0; i < kLoadsAhead; ++i) {
      const std::int64_t split_row = rows.row_of(min(first + i, rows.splits - 1));
      values[i] = reinterpret_cast<const float4*>(splits.sums +
                                                  split_row * SparseConfig::kLatent)[threadIdx.x];
    }
  }
  // In the order of the splits. Nothing was written where nothing was seen.
  __device__ void add_to(float4& sums, int first, float lane_weight) const {
#pragma unroll
    for (int i = 0; i < kLoadsAhead; ++i) {
      const float weight = __shfl_sync(0xffffffff, lane_weight, first + i);
      if (weight == 0.0F) continue;
      sums.x += values[i].x * weight;
      sums.y += values[i].y * weight;
      sums.z += values[i].z * weight;
      sums.w += values[i].w * weight;
    }
  }
};

__device__ void store_columns(const AttendOutput& output, std::int64_t token, int head,
                              const float4& x, float factor) {
  std::byte* row = output.out + token * output.token_bytes + head * output.head_bytes;
  const float4 y =
      factor == 0.0F ? float4{} : float4{x.x * factor, x.y * factor, x.z * factor, x.w * factor};
  if (output.dtype == DType::f32) {
    reinterpret_cast<float4*>(row)[threadIdx.x] = y;
  } else if (output.dtype == DType::f16) {
    reinterpret_cast<uint2*>(row)[threadIdx.x] = {pack_pair<DType::f16>(y.x, y.y),
                                                  pack_pair<DType::f16>(y.z, y.w)};
  } else {
    reinterpret_cast<uint2*>(row)[threadIdx.x] = {pack_pair<DType::bf16>(y.x, y.y),
                                                  pack_pair<DType::bf16>(y.z, y.w)};
  }
}

// A token's heads that share a work tile.
__host__ __device__ int heads_of_unit(const SparseWork& work) {
  return work.heads < SparseConfig::kHeads ? work.heads : SparseConfig::kHeads;
}

__global__ void __launch_bounds__(kMergeThreads)
    merge_kernel(const __grid_constant__ SparseParams params) {
  const SparseWork& work = params.work;
  const int unit_heads = heads_of_unit(work);
  const int number = static_cast<int>(blockIdx.x) / unit_heads;  // of those that are cut
  const int row = static_cast<int>(blockIdx.x) % unit_heads;
  const int unit = work.whole + number;
  const std::int64_t token = unit / work.head_tiles;
  const int head = unit % work.head_tiles * SparseConfig::kHeads + row;
  const SplitRows rows{.first = std::int64_t{number} * work.splits * SparseConfig::kHeads + row,
                       .splits = work.splits};
  if (head >= work.heads) return;
  const bool is_somebodys = token < params.row_offsets[params.streams[0].rows.batch];
  cudaGridDependencySynchronize();
  if (!is_somebodys) return;
  // The first columns are on their way while one looks at the weights.
  SplitColumns columns;
  columns.load(params.splits, rows, 0);
  const CombinedRow merged = merge_stats(params.splits.stats, rows);
  const SparseFinish finish = finish_row(merged.base, merged.sum, params.output.sinks, head);
  float4 sums{};
  columns.add_to(sums, 0, merged.weight);
  for (int first = kLoadsAhead; first < rows.splits; first += kLoadsAhead) {
    columns.load(params.splits, rows, first);
    columns.add_to(sums, first, merged.weight);
  }
  store_columns(params.output, token, head, sums, finish.factor);
  if (threadIdx.x == 0 && params.output.lse != nullptr) {
    params.output
        .lse[token * params.output.lse_token_stride + head * params.output.lse_head_stride] =
        finish.lse;
  }
}

}  // namespace

void merge_sparse_splits(const SparseParams& params, cudaStream_t stream) {
  if (params.work.cut() == 0) return;
  launch(merge_kernel,
         {.grid = dim3(static_cast<unsigned>(params.work.cut() * heads_of_unit(params.work))),
          .block = dim3(kMergeThreads),
          .overlaps_previous = true},
         stream, params);
}

}  // namespace quire::cuda::sm90::sparse_mla
