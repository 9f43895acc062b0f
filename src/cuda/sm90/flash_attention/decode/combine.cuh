// SPDX-License-Identifier: Apache-2.0
// Splits of a work tile become rows of the output, in the order of the keys. A warp per row.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/common/softmax/softmax.cuh"
#include "cuda/common/split_kv/find_work.cuh"
#include "cuda/common/thread/warp_reduce.cuh"
#include "cuda/sm90/flash_attention/decode/params.h"

namespace quire::cuda::sm90::flash_attention {

// Sums over keys brought together, and finished rows to memory.

inline constexpr float kNoKey = -INFINITY;

__device__ inline void store_column(const DecodeOutputs& outputs, std::int64_t index, float value) {
  switch (outputs.dtype) {
    case DType::f32:
      reinterpret_cast<float*>(outputs.out)[index] = value;
      return;
    case DType::f16:
      reinterpret_cast<__half*>(outputs.out)[index] = __float2half_rn(value);
      return;
    default:
      reinterpret_cast<__nv_bfloat16*>(outputs.out)[index] = __float2bfloat16_rn(value);
  }
}

__device__ inline void store_vector(const DecodeOutputs& outputs, std::int64_t index,
                                    const float4& values) {
  if (outputs.dtype == DType::f32) {
    *reinterpret_cast<float4*>(outputs.out + index * 4) = values;
  } else if (outputs.dtype == DType::f16) {
    const __half2 pairs[2] = {__floats2half2_rn(values.x, values.y),
                              __floats2half2_rn(values.z, values.w)};
    *reinterpret_cast<uint2*>(outputs.out + index * 2) = reinterpret_cast<const uint2&>(pairs);
  } else {
    const __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(values.x, values.y),
                                     __floats2bfloat162_rn(values.z, values.w)};
    *reinterpret_cast<uint2*>(outputs.out + index * 2) = reinterpret_cast<const uint2&>(pairs);
  }
}

// Columns [column, column + 4) of a row, those past value_dim dropped.
__device__ inline void store_output(const DecodeOutputs& outputs, std::int64_t token, int head,
                                    int column, const float4& values) {
  const std::int64_t index = token * outputs.token_stride + head * outputs.head_stride + column;
  if (outputs.has_vectors && column + 4 <= outputs.value_dim) {
    store_vector(outputs, index, values);
    return;
  }
  // Rare: kept short, since code is waited for as well.
  float value = values.x;
#pragma unroll 1
  for (int i = 0; i < 4 && column + i < outputs.value_dim; ++i) {
    store_column(outputs, index + i, value);
    value = i == 0 ? values.y : (i == 1 ? values.z : values.w);
  }
}

__device__ inline void store_lse(const DecodeOutputs& outputs, std::int64_t token, int head,
                                 float lse) {
  if (outputs.lse == nullptr) return;
  outputs.lse[token * outputs.lse_token_stride + head * outputs.lse_head_stride] = lse;
}

__device__ inline float4 scaled(const float4& values, float factor) {
  return {values.x * factor, values.y * factor, values.z * factor, values.w * factor};
}
__device__ inline void add_scaled(float4& sums, const float4& values, float factor) {
  sums.x += values.x * factor;
  sums.y += values.y * factor;
  sums.z += values.z * factor;
  sums.w += values.w * factor;
}

struct MergeWorkTile {
  int splits = 0;  // below 2: nothing to merge
  int kv_head = 0;
  int tile = 0;
  std::int64_t first_slot = 0;   // of split 0
  std::int64_t second_slot = 0;  // of split 1
  int slot_step = 1;             // from there on
  int first_token = 0;           // row of q of row 0
  int tokens = 0;

  __device__ std::int64_t slot(int split) const {
    return split == 0 ? first_slot : second_slot + std::int64_t{split - 1} * slot_step;
  }
};

__device__ inline void set_tokens(const DecodeParams& params, const SequenceWork& work,
                                  MergeWorkTile& work_tile) {
  const DecodeBatch& batch = params.batch;
  const int skipped = work_tile.tile * batch.tile_tokens;
  work_tile.kv_head = params.listed.kv_head(work.first_token, work_tile.kv_head);
  work_tile.first_token = params.listed.token(work.first_token) + skipped;
  work_tile.tokens = min(work.tokens - skipped, batch.tile_tokens);
}

// A row's sums over the splits so far: four columns.
struct MergedRow {
  float max = kNoKey;
  float sum = 0.0F;
  float4 values{};
};

// values += those of splits [0, count) times their weights, in order; lane l holds weight and place of
// split l, rows of `dims` numbers. Past L1: other CTAs wrote them.
__device__ inline void add_splits(const float* sums, int dims, int place, float weight, int count,
                                  float4& values) {
  constexpr int kLoadsAhead = 8;
#pragma unroll 1
  for (int first = 0; first < count; first += kLoadsAhead) {
    float4 loaded[kLoadsAhead];
#pragma unroll
    for (int i = 0; i < kLoadsAhead; ++i) {
      const std::int64_t from = __shfl_sync(kWholeWarp, place, first + i);
      loaded[i] = __ldcg(reinterpret_cast<const float4*>(sums + from * dims));
    }
#pragma unroll
    for (int i = 0; i < kLoadsAhead; ++i) {
      add_scaled(values, loaded[i], __shfl_sync(kWholeWarp, weight, first + i));
    }
  }
}

// Columns [column, column + 4) of a row. Code is run once here and each instruction waited for: what
// belongs to a split is done by a lane, not again and again by all.
__device__ inline MergedRow merge_columns(const DecodeSplits& splits, const MergeShape& shape,
                                          const MergeWorkTile& work_tile, int row, int column) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  MergedRow merged;
#pragma unroll 1
  for (int first = 0; first < work_tile.splits; first += 32) {
    const int count = min(work_tile.splits - first, 32);
    // Lanes without a split repeat the last one, with no weight.
    const auto place =
        static_cast<int>(work_tile.slot(first + min(lane, count - 1)) * shape.rows + row);
    const float2 stats = __ldcg(splits.stats + place);
    const float max = lane < count ? stats.x : kNoKey;
    const float top = fmaxf(merged.max, warp_max(max));
    const float change = rebased(merged.max, top);
    const float weight = rebased(max, top);
    merged.max = top;
    merged.sum = merged.sum * change + warp_sum(stats.y * weight);
    merged.values = scaled(merged.values, change);
    add_splits(splits.sums + column, shape.dims, place, weight, count, merged.values);
  }
  return merged;
}

// By `warps` warps, of which this is number `warp`.
__device__ inline void merge_rows(const DecodeParams& params, const MergeShape& shape,
                                  const MergeWorkTile& work_tile, int warp, int warps) {
  const int group = params.batch.group;
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int row = warp; row < work_tile.tokens * group; row += warps) {
    const int head = work_tile.kv_head * group + row % group;
    const std::int64_t token = work_tile.first_token + row / group;
    for (int first = 0; first < params.outputs.value_dim; first += 128) {
      const int column = first + lane * 4;
      const MergedRow merged = merge_columns(params.splits, shape, work_tile, row, column);
      const RowEnd end = end_row(params.scores, head, merged.max, merged.sum);
      const float factor = end.factor * params.scales.of_values(work_tile.kv_head);
      store_output(params.outputs, token, head, column, scaled(merged.values, factor));
      if (column == 0) store_lse(params.outputs, token, head, end.lse);
    }
  }
}

}  // namespace quire::cuda::sm90::flash_attention
