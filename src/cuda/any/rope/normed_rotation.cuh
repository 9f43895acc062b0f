// SPDX-License-Identifier: Apache-2.0
// Norm and rotation of a chunk of a token's rows. A row stays whole in the registers of its lanes: vector v (columns
// 8v to 8v + 7) is in slot v / lanes of lane v % lanes. With half-split pairs lanes = rope_dim / 16,
// so that slots 0 and 1 of a lane hold the two halves of its pairs.
#pragma once

#include "cuda/any/rope/params.h"
#include "cuda/any/rope/token_walk.cuh"
#include "cuda/common/rows/rope_angles.cuh"
#include "cuda/common/rows/vec8.cuh"

namespace quire::cuda::any::rope {

// The weights of q's norm and of the key's in shared memory, as fp32 and with their offset: every row of a block
// needs them. Vectors of eight stand as two halves apart, so that neighbouring lanes read neighbouring banks.

class NormWeights {
 public:
  static constexpr int kMostColumns = 1024;

  // All threads of the block.
  __device__ void fill(const RopeNorm& norm, float offset) {
    for (int c = static_cast<int>(threadIdx.x); c < norm.columns; c += blockDim.x) {
      const float weight = load_one(norm.gamma, norm.dtype, c) + offset;
      reinterpret_cast<float*>(&halves_[c / 4 % 2][c / kVec8])[c % 4] = weight;
    }
  }

  // The same, but 1 where there is no norm, of `columns` columns.
  __device__ void fill_or_ones(const RopeNorm& norm, int columns, float offset) {
    if (norm.gamma != nullptr) return fill(norm, offset);
    for (int i = static_cast<int>(threadIdx.x); i < columns / kVec8; i += blockDim.x) {
      halves_[0][i] = halves_[1][i] = make_float4(1.0f, 1.0f, 1.0f, 1.0f);
    }
  }

  // Of eight columns from `column` on.
  __device__ void load(int column, float (&weights)[kVec8]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float4 half = halves_[h][column / kVec8];
      weights[4 * h] = half.x;
      weights[4 * h + 1] = half.y;
      weights[4 * h + 2] = half.z;
      weights[4 * h + 3] = half.w;
    }
  }

  // values · factor · weights, of the same columns.
  __device__ void scale(int column, float factor, float (&values)[kVec8]) const {
    float gamma[kVec8];
    load(column, gamma);
#pragma unroll
    for (int i = 0; i < kVec8; ++i) values[i] = values[i] * factor * gamma[i];
  }

 private:
  float4 halves_[2][kMostColumns / kVec8];
};

struct BlockWeights {
  NormWeights query;
  NormWeights key;
};

enum class Pairing : std::uint8_t { half_split, interleaved };

// kLaneBytes: of rows that a lane has in flight; with more than 128 f32 spills registers. AngleTable::any: how the
// angles stand is asked at run time.
template <DType kXType, Pairing kPairsStand, int kLaneSlots, int kLaneBytes = 128,
          AngleTable kAngleTable = AngleTable::any>
struct NormedConfig {
  static constexpr AngleTable kTable = kAngleTable;
  static constexpr DType kX = kXType;
  static constexpr bool kIsSplit = kPairsStand == Pairing::half_split;
  static constexpr int kSlots = kLaneSlots;
  static constexpr int kSteps = kLaneBytes / (kSlots * kVec8 * (bits(kX) / 8));
  // As many as their registers allow.
  static constexpr int kBlocksPerSm = kLaneBytes == 64 ? 3 : bits(kX) == 32 && kSlots > 2 ? 1 : 2;
};

// What a row's head says of it.
struct RopeRowKind {
  const RopeNorm& norm;
  const NormWeights& weights;
  int width;
  bool is_key;
};

template <typename Config> class NormedRotation {
 public:
  __device__ NormedRotation(const RopeParams& params, const BlockWeights& weights, int lanes)
      : params_(params), weights_(weights), lanes_(lanes) {
    const int lane = threadIdx.x % kWarp;
    lane_ = lane & (lanes - 1);
    row_ = lane / lanes;
  }

  static __host__ __device__ int heads_per_chunk(int lanes) {
    return kWarp / lanes * Config::kSteps;
  }

  // The chunk of heads at which the walk stands. All lanes of the warp stay together: they take part in
  // each other's sums.
  __device__ void run(TokenWalk& walk) {
    token_ = walk.token();
    first_head_ = walk.chunk() * heads_per_chunk(lanes_) + row_;
    Raw raw[Config::kSteps] = {};
#pragma unroll
    for (int s = 0; s < Config::kSteps; ++s) {
      if (head(s) < params_.heads) load(query(s), params_.head_dim, raw[s]);
    }
    const RopeToken place = walk.place();
    if (!place.exists()) return;
    angles_ = place.angles;
    if constexpr (Config::kIsSplit) {
      find_angles(lane_ * kVec8, cosines_, sines_);
    }
#pragma unroll
    for (int s = 0; s < Config::kSteps; ++s) {
      const std::byte* row = key(s, place.keys);
      if (row != nullptr) load(row, params_.key_width, raw[s]);
    }
    float sums[Config::kSteps];
#pragma unroll
    for (int s = 0; s < Config::kSteps; ++s) sums[s] = squares(kind(s).norm.columns, raw[s]);
    for (int lane = lanes_ / 2; lane > 0; lane /= 2) {
#pragma unroll
      for (int s = 0; s < Config::kSteps; ++s) {
        sums[s] += __shfl_xor_sync(0xffffffffu, sums[s], lane);
      }
    }
#pragma unroll
    for (int s = 0; s < Config::kSteps; ++s) {
      std::byte* out = target(s, place.keys);
      if (out != nullptr) finish(s, out, raw[s], sums[s]);
    }
  }

 private:
  using X = Eight<Config::kX>;
  using Raw = typename X::Raw[Config::kSlots];
  static constexpr int kWarp = 32;
  static constexpr int kBytes = bits(Config::kX) / 8;

  __device__ int head(int step) const {
    return first_head_ + step * (kWarp / lanes_);
  }
  __device__ int column(int slot) const {
    return (slot * lanes_ + lane_) * kVec8;
  }
  __device__ const std::byte* query(int step) const {
    return params_.q + token_ * params_.q_token_bytes + head(step) * params_.q_head_bytes;
  }
  __device__ std::byte* key(int step, std::byte* keys) const {
    const int index = head(step) - params_.heads;
    if (keys == nullptr || index < 0 || index >= params_.key_heads) return nullptr;
    return keys + index * params_.key.head_stride_bytes +
           params_.key.row_format.parts[0].offset_bytes;
  }
  __device__ std::byte* target(int step, std::byte* keys) const {
    if (head(step) >= params_.heads) return key(step, keys);
    return params_.out + token_ * params_.out_token_bytes + head(step) * params_.out_head_bytes;
  }
  __device__ RopeRowKind kind(int step) const {
    if (head(step) < params_.heads) {
      return {params_.q_norm, weights_.query, params_.head_dim, false};
    }
    return {params_.key_norm, weights_.key, params_.key_width, true};
  }

  __device__ void load(const std::byte* row, int width, Raw& raw) const {
    __builtin_assume(__isGlobal(row));
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      if (column(s) < width) raw[s] = X::load(row + column(s) * kBytes);
    }
  }

  template <int kPairs>
  __device__ void find_angles(int first, float (&cosines)[kPairs], float (&sines)[kPairs]) const {
    if (Config::kTable == AngleTable::rows || params_.angles.stand_in_rows()) {
      load_angles<AngleTable::rows>(params_.angles, token_, angles_, first, cosines, sines);
    } else {
      load_angles<AngleTable::any>(params_.angles, token_, angles_, first, cosines, sines);
    }
  }

  __device__ static float mean_of(float sum, const RopeNorm& norm) {
    return norm.exact_inverse != 0.0f ? sum * norm.exact_inverse
                                      : sum / static_cast<float>(norm.columns);
  }

  // Of the lane's columns, for the sum over its row's lanes.
  __device__ float squares(int columns, const Raw& raw) const {
    float sum = 0.0f;
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      float x[kVec8];
      X::decode(raw[s], x);
      if (column(s) >= columns) continue;
#pragma unroll
      for (int i = 0; i < kVec8; ++i) sum = fmaf(x[i], x[i], sum);
    }
    return sum;
  }

  __device__ void finish(int step, std::byte* out, const Raw& raw, float sum) const {
    const RopeRowKind row = kind(step);
    float x[Config::kSlots][kVec8];
    const float mean = mean_of(sum, row.norm);
    const float factor = __frsqrt_rn(mean + static_cast<float>(params_.epsilon));
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      X::decode(raw[s], x[s]);
      if (column(s) < row.norm.columns) row.weights.scale(column(s), factor, x[s]);
    }
    rotate(row, x);
    store(row, raw, x, out);
  }

  __device__ void rotate(const RopeRowKind& row, float (&x)[Config::kSlots][kVec8]) const {
    if constexpr (Config::kIsSplit) {
#pragma unroll
      for (int j = 0; j < kVec8; ++j) rotate_pair(x[0][j], x[1][j], cosines_[j], sines_[j]);
    } else {
#pragma unroll
      for (int s = 0; s < Config::kSlots; ++s) {
        const int first = column(s) - (row.width - params_.rope_dim);
        if (first < 0 || column(s) >= row.width) continue;
        float cosines[kVec8 / 2];
        float sines[kVec8 / 2];
        find_angles(first / 2, cosines, sines);
#pragma unroll
        for (int j = 0; j < kVec8 / 2; ++j) {
          rotate_pair(x[s][2 * j], x[s][2 * j + 1], cosines[j], sines[j]);
        }
      }
    }
  }

  // Columns that do not change keep their bits; in a key they are not even written.
  __device__ void store(const RopeRowKind& row, const Raw& raw,
                        const float (&x)[Config::kSlots][kVec8], std::byte* out) const {
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      if (column(s) >= row.width) continue;
      const bool is_rotated = Config::kIsSplit ? s < 2 : column(s) >= row.width - params_.rope_dim;
      auto* vector = reinterpret_cast<typename X::Raw*>(out + column(s) * kBytes);
      if (column(s) < row.norm.columns || is_rotated) {
        *vector = X::encode(x[s]);
      } else if (!row.is_key) {
        *vector = raw[s];
      }
    }
  }

  const RopeParams& params_;
  const BlockWeights& weights_;
  int lanes_;
  int lane_;  // among those of its row
  int row_;   // of the rows that a warp holds at a time
  std::int64_t token_ = 0;
  std::int64_t angles_ = 0;
  int first_head_ = 0;         // q's heads, then the key's
  float cosines_[kVec8] = {};  // half-split: of the lane's pairs
  float sines_[kVec8] = {};
};

}  // namespace quire::cuda::any::rope
