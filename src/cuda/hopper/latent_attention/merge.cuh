// SPDX-License-Identifier: Apache-2.0
// Pieces of an item become rows of the output, in the order of the keys: a warp for 128 columns of a
// row, or for all 512.
#pragma once

#include "cuda/hopper/latent_attention/config.h"
#include "cuda/hopper/latent_attention/row_stats.cuh"

namespace quire::cuda::hopper {

// Where the pieces of an item stand in the workspace.
struct PieceSlots {
  int count = 0;  // below 2: nothing to merge
  std::int64_t first = 0;
  std::int64_t second = 0;
  int step = 1;  // from there on

  __device__ std::int64_t at(int piece) const {
    return piece == 0 ? first : second + std::int64_t{piece - 1} * step;
  }
};

struct MergedStats {
  float max = -INFINITY;
  float sum = 0.0F;
};

__device__ inline float warp_highest(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, distance));
  }
  return value;
}
__device__ inline float warp_total(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffff, value, distance);
  }
  return value;
}

__device__ inline MergedStats merge_stats(const LatentPieces& pieces, const PieceSlots& slots,
                                          int row) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  constexpr int kAtOnce = 5;  // loads of a lane: as many pieces as there are multiprocessors
  MergedStats merged;
  for (int first = 0; first < slots.count; first += 32 * kAtOnce) {
    float2 stats[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int piece = first + 32 * i + lane;
      stats[i] = {-INFINITY, 0.0F};
      if (piece < slots.count) stats[i] = pieces.stats[slots.at(piece) * pieces.rows + row];
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + 32 * i >= slots.count) break;
      const float top = fmaxf(merged.max, warp_highest(stats[i].x));
      merged.sum =
          merged.sum * rebased(merged.max, top) + warp_total(stats[i].y * rebased(stats[i].x, top));
      merged.max = top;
    }
  }
  return merged;
}

// Columns 128c + 4 · lane … + 3 of a row, for kChunks values of c from `chunk` on, of kAhead pieces that are
// on their way at a time.
template <int kChunks, int kAhead> class PieceBatch {
 public:
  __device__ PieceBatch(const LatentPieces& pieces, const PieceSlots& slots, int row, int chunk)
      : pieces_(pieces),
        slots_(slots),
        row_(row),
        column_(chunk * 128 + static_cast<int>(threadIdx.x % 32) * 4) {}

  // Pieces from `first` on.
  __device__ void fetch(int first) {
    first_ = first;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const std::int64_t place = slots_.at(min(first + i, slots_.count - 1)) * pieces_.rows + row_;
      const float* source = pieces_.sums + place * LatentConfig::kLatent + column_;
      tops_[i] = pieces_.stats[place].x;
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
      const float weight = first_ + i < slots_.count ? rebased(tops_[i], max) : 0.0F;
      if (weight == 0.0F) continue;  // a piece without keys, or one read twice
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
  const LatentPieces& pieces_;
  const PieceSlots& slots_;
  const int row_;
  const int column_;
  int first_ = 0;
  float4 values_[kAhead][kChunks];
  float tops_[kAhead];
};

// `token`: row of q of the item's first row.
template <DType kDType, int kChunks, int kAhead>
__device__ inline void merge_row(const LatentParams& params, const PieceSlots& slots,
                                 std::int64_t first_token, int row, int chunk) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  PieceBatch<kChunks, kAhead> batch(params.pieces, slots, row, chunk);
  batch.fetch(0);  // beside the statistics
  const MergedStats stats = merge_stats(params.pieces, slots, row);
  const std::int64_t token = first_token + row / params.heads;
  const int head = row % params.heads;
  const RowEnd end = end_row(params.outputs, head, stats.max, stats.sum);
  float4 sums[kChunks] = {};
  batch.add_to(sums, stats.max);
  for (int first = kAhead; first < slots.count; first += kAhead) {
    batch.fetch(first);
    batch.add_to(sums, stats.max);
  }
  const LatentOutputs& outputs = params.outputs;
  std::byte* out =
      outputs.out + token * outputs.token_stride_bytes + head * outputs.head_stride_bytes;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const float4& sum = sums[c];
    const uint2 words = {pack_pair<kDType>(sum.x * end.factor, sum.y * end.factor),
                         pack_pair<kDType>(sum.z * end.factor, sum.w * end.factor)};
    reinterpret_cast<uint2*>(out)[(chunk + c) * 32 + lane] = words;
  }
  if (outputs.lse != nullptr && chunk == 0 && lane == 0) {
    outputs.lse[token * outputs.lse_token_stride + head * outputs.lse_head_stride] = end.lse;
  }
}

// The same for 32 columns of a row and many pieces: eight lanes have the columns, every fourth piece is
// theirs. Bytes of many pieces are then on their way at once.
template <DType kDType>
__device__ inline void merge_part(const LatentParams& params, const PieceSlots& slots,
                                  std::int64_t first_token, int row, int part) {
  constexpr int kGroups = 4;
  constexpr int kAhead = 11;
  const LatentPieces& pieces = params.pieces;
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const int column = part * 32 + lane % 8 * 4;
  const MergedStats stats = merge_stats(pieces, slots, row);
  float4 sum{};
  for (int first = lane / 8; first < slots.count; first += kGroups * kAhead) {
    float4 values[kAhead];
    float tops[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int piece = min(first + kGroups * i, slots.count - 1);
      const std::int64_t place = slots.at(piece) * pieces.rows + row;
      tops[i] = pieces.stats[place].x;
      values[i] =
          *reinterpret_cast<const float4*>(pieces.sums + place * LatentConfig::kLatent + column);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const float weight = first + kGroups * i < slots.count ? rebased(tops[i], stats.max) : 0.0F;
      if (weight == 0.0F) continue;  // a piece without keys, or one read twice
      sum.x = fmaf(values[i].x, weight, sum.x);
      sum.y = fmaf(values[i].y, weight, sum.y);
      sum.z = fmaf(values[i].z, weight, sum.z);
      sum.w = fmaf(values[i].w, weight, sum.w);
    }
  }
#pragma unroll
  for (int distance = 8; distance <= 16; distance *= 2) {
    sum.x += __shfl_xor_sync(0xffffffff, sum.x, distance);
    sum.y += __shfl_xor_sync(0xffffffff, sum.y, distance);
    sum.z += __shfl_xor_sync(0xffffffff, sum.z, distance);
    sum.w += __shfl_xor_sync(0xffffffff, sum.w, distance);
  }
  const LatentOutputs& outputs = params.outputs;
  const std::int64_t token = first_token + row / params.heads;
  const int head = row % params.heads;
  const RowEnd end = end_row(outputs, head, stats.max, stats.sum);
  if (lane < 8) {
    std::byte* out = outputs.out + token * outputs.token_stride_bytes +
                     head * outputs.head_stride_bytes + bytes_for(kDType, column);
    *reinterpret_cast<uint2*>(out) = {pack_pair<kDType>(sum.x * end.factor, sum.y * end.factor),
                                      pack_pair<kDType>(sum.z * end.factor, sum.w * end.factor)};
  }
  if (outputs.lse != nullptr && part == 0 && lane == 0) {
    outputs.lse[token * outputs.lse_token_stride + head * outputs.lse_head_stride] = end.lse;
  }
}

}  // namespace quire::cuda::hopper
