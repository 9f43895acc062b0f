// SPDX-License-Identifier: Apache-2.0
// The scores of one token for all keys that it may see, 64 keys × 64 heads at a time, as ranks:
// unsigned numbers in the order of the scores.
#pragma once

#include "cuda/any/mla_indexer/params.h"
#include "cuda/common/rows/rank.cuh"
#include "cuda/common/rows/row_reader.cuh"

namespace quire::cuda::any::mla_indexer {

inline constexpr int kIndexerThreads = 256;
inline constexpr int kIndexerTile = 64;   // keys, and heads
inline constexpr int kIndexerChunk = 64;  // columns of a step
inline constexpr int kIndexerGroups = 16;
inline constexpr int kIndexerSums = kIndexerTile / kIndexerGroups;

struct ScoreShared {
  float keys[kIndexerTile][kIndexerChunk + 4];
  float queries[kIndexerTile][kIndexerChunk + 4];
  float parts[kIndexerGroups][kIndexerTile];  // of the sum over heads
  RowPlace places[kIndexerTile];
};

struct IndexedToken {
  std::int64_t token;
  int sequence;
};

// Dot products of 64 heads from first_head on with the 64 keys of the tile.
__device__ inline void multiply_heads(const IndexerParams& params, const IndexedToken& at,
                                      int first_head, ScoreShared& shared,
                                      float (&sums)[kIndexerSums][kIndexerSums]) {
  constexpr int kRuns = kIndexerChunk / kVec8;
  const int key_group = static_cast<int>(threadIdx.x) % kIndexerGroups;
  const int head_group = static_cast<int>(threadIdx.x) / kIndexerGroups;
  const PlainRows keys{
      .dtype = DType::fp8_e4m3, .width = params.q.width, .reads_vec8 = params.keys.reads_vec8};
  const int key_offset = params.keys.view.row_format.parts[0].offset_bytes;
  for (int column = 0; column < params.q.width; column += kIndexerChunk) {
    __syncthreads();
    for (int i = threadIdx.x; i < kIndexerTile * kRuns; i += kIndexerThreads) {
      const int row = i / kRuns;
      const int run = i % kRuns * kVec8;
      const RowPlace place = shared.places[row];
      float values[kVec8];
      load_columns(keys, place.exists() ? place.row + key_offset : nullptr, column + run, values);
      reinterpret_cast<float4*>(&shared.keys[row][run])[0] = {values[0], values[1], values[2],
                                                              values[3]};
      reinterpret_cast<float4*>(&shared.keys[row][run])[1] = {values[4], values[5], values[6],
                                                              values[7]};
      const int head = first_head + row;
      const std::byte* q = params.q.data + at.token * params.q.token_bytes +
                           std::int64_t{head} * params.q.head_bytes;
      load_columns(params.q, head < params.heads ? q : nullptr, column + run, values);
      reinterpret_cast<float4*>(&shared.queries[row][run])[0] = {values[0], values[1], values[2],
                                                                 values[3]};
      reinterpret_cast<float4*>(&shared.queries[row][run])[1] = {values[4], values[5], values[6],
                                                                 values[7]};
    }
    __syncthreads();
#pragma unroll 4
    for (int c = 0; c < kIndexerChunk; c += 4) {
      float4 q[kIndexerSums];
#pragma unroll
      for (int i = 0; i < kIndexerSums; ++i) {
        q[i] =
            *reinterpret_cast<const float4*>(&shared.queries[head_group + i * kIndexerGroups][c]);
      }
#pragma unroll
      for (int j = 0; j < kIndexerSums; ++j) {
        const float4 k =
            *reinterpret_cast<const float4*>(&shared.keys[key_group + j * kIndexerGroups][c]);
#pragma unroll
        for (int i = 0; i < kIndexerSums; ++i) {
          sums[i][j] = fmaf(q[i].w, k.w,
                            fmaf(q[i].z, k.z, fmaf(q[i].y, k.y, fmaf(q[i].x, k.x, sums[i][j]))));
        }
      }
    }
  }
}

// Σ over this thread's heads of max(0, dot) · q_scale, for each of its keys.
__device__ inline void weigh_heads(const IndexerParams& params, const IndexedToken& at,
                                   int first_head, const float (&sums)[kIndexerSums][kIndexerSums],
                                   float (&weighted)[kIndexerSums]) {
  const int head_group = static_cast<int>(threadIdx.x) / kIndexerGroups;
#pragma unroll
  for (int i = 0; i < kIndexerSums; ++i) {
    const int head = first_head + head_group + i * kIndexerGroups;
    if (head >= params.heads) continue;
    const float scale =
        params.q_scale[at.token * params.q_scale_token_stride + head * params.q_scale_head_stride];
#pragma unroll
    for (int j = 0; j < kIndexerSums; ++j) {
      const float positive = sums[i][j] < 0.0f ? 0.0f : sums[i][j];  // NaN stays
      weighted[j] = fmaf(positive, scale, weighted[j]);
    }
  }
}

// Ranks of the keys [first, first + 64) below `bound`.
__device__ inline void score_tile(const IndexerParams& params, const IndexedToken& at,
                                  std::int64_t first, std::int64_t bound, ScoreShared& shared,
                                  std::uint32_t* ranks) {
  const KvLayerView& view = params.keys.view;
  __syncthreads();
  if (threadIdx.x < kIndexerTile) {
    const std::int64_t key = first + threadIdx.x;
    shared.places[threadIdx.x] = key < bound ? place_row(view, at.sequence, key, 0) : RowPlace{};
  }
  float weighted[kIndexerSums] = {};
  for (int head = 0; head < params.heads; head += kIndexerTile) {
    float sums[kIndexerSums][kIndexerSums] = {};
    multiply_heads(params, at, head, shared, sums);
    weigh_heads(params, at, head, sums, weighted);
  }
#pragma unroll
  for (int j = 0; j < kIndexerSums; ++j) {
    shared.parts[threadIdx.x / kIndexerGroups][threadIdx.x % kIndexerGroups + j * kIndexerGroups] =
        weighted[j];
  }
  __syncthreads();
  if (threadIdx.x >= kIndexerTile || first + threadIdx.x >= bound) return;
  const RowPlace place = shared.places[threadIdx.x];
  float sum = 0.0f;
  for (int group = 0; group < kIndexerGroups; ++group) sum += shared.parts[group][threadIdx.x];
  const float scale = place.exists() ? scale_of(view, view.row_format.parts[0], place, 0, 0) : 0.0f;
  ranks[first + threadIdx.x] = place.exists() ? rank_of(sum * scale) : kAbsentRank;
}

}  // namespace quire::cuda::any::mla_indexer
