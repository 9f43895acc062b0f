// SPDX-License-Identifier: Apache-2.0
// Norm and rotation of a token's rows of 128 half-split 16-bit columns, all of them turned. Eight lanes hold a row:
// vector v (columns 8v to 8v + 7) and vector v + 8 are lane v's, which are the two halves of its pairs. They know in
// registers what the norm's weights and the angles make of a pair:
//   (a, b) → factor · (a · γa · cos - b · γb · sin, a · γa · sin + b · γb · cos)
#pragma once

#include "cuda/any/rope/normed_rotation.cuh"
#include "cuda/common/rows/rope_angles.cuh"

namespace quire::cuda::any::rope {

inline constexpr int kTurnLanes = kNormedRowColumns / (2 * kVec8);  // that share a row
inline constexpr int kTurnedAtATime = 2;                            // rows of a lane in flight

// Rows of one token that a lane has a share in.
struct TokenRows {
  const std::byte* from = nullptr;  // null: the rows are nobody's
  std::byte* to = nullptr;
  std::int64_t from_step = 0;
  std::int64_t to_step = 0;
  int count = 0;
};

// What becomes of a lane's eight pairs but for the factor of their row.
class PairTurns {
 public:
  __device__ PairTurns(const RopeParams& params, const NormWeights& weights, int angle_row,
                       int lane) {
    const auto* angles = reinterpret_cast<const float4*>(
        reinterpret_cast<const float*>(params.angles.freqs) +
        max(angle_row, 0) * params.angles.row_stride + 2 * kVec8 * lane);
    float first[kVec8];
    float second[kVec8];
    weights.load(lane * kVec8, first);
    weights.load((kTurnLanes + lane) * kVec8, second);
#pragma unroll
    for (int i = 0; i < kVec8 / 2; ++i) {
      const float4 two = __ldg(angles + i);
      set(2 * i, first, second, two.x, two.y);
      set(2 * i + 1, first, second, two.z, two.w);
    }
  }

  __device__ void apply(float factor, float (&a)[kVec8], float (&b)[kVec8]) const {
#pragma unroll
    for (int i = 0; i < kVec8; ++i) {
      const float turned = fmaf(a[i], first_cos_[i], -(b[i] * second_sin_[i]));
      b[i] = fmaf(a[i], first_sin_[i], b[i] * second_cos_[i]) * factor;
      a[i] = turned * factor;
    }
  }

 private:
  __device__ void set(int i, const float (&first)[kVec8], const float (&second)[kVec8],
                      float cosine, float sine) {
    first_cos_[i] = first[i] * cosine;
    first_sin_[i] = first[i] * sine;
    second_cos_[i] = second[i] * cosine;
    second_sin_[i] = second[i] * sine;
  }

  float first_cos_[kVec8];
  float first_sin_[kVec8];
  float second_cos_[kVec8];
  float second_sin_[kVec8];
};

template <DType kX> class RowRotation {
 public:
  __device__ RowRotation(const RopeParams& params, const RopeNorm& norm, const TokenRows& rows,
                         int lane)
      : rows_(rows),
        lane_bytes_(lane * kBytes),
        epsilon_(static_cast<float>(params.epsilon)),
        has_norm_(norm.gamma != nullptr) {}

  __device__ void load(int first) {
#pragma unroll
    for (int r = 0; r < kTurnedAtATime; ++r) {
      raw_[r][0] = raw_[r][1] = {};
      if (rows_.from == nullptr || first + r >= rows_.count) continue;
      const std::byte* from = rows_.from + (first + r) * rows_.from_step + lane_bytes_;
      __builtin_assume(__isGlobal(from));
      raw_[r][0] = X::load(from);
      raw_[r][1] = X::load(from + kTurnLanes * kBytes);
    }
  }

  // All lanes of a warp take part in the sums.
  __device__ void finish(int first, const PairTurns& turns) {
    float sums[kTurnedAtATime];
#pragma unroll
    for (int r = 0; r < kTurnedAtATime; ++r) sums[r] = squares(raw_[r]);
#pragma unroll
    for (int other = kTurnLanes / 2; other > 0; other /= 2) {
#pragma unroll
      for (int r = 0; r < kTurnedAtATime; ++r)
        sums[r] += __shfl_xor_sync(0xffffffffu, sums[r], other);
    }
#pragma unroll
    for (int r = 0; r < kTurnedAtATime; ++r) {
      if (rows_.to == nullptr || first + r >= rows_.count) continue;
      std::byte* to = rows_.to + (first + r) * rows_.to_step + lane_bytes_;
      store(raw_[r], sums[r], turns, to);
    }
  }

 private:
  using X = Eight<kX>;
  using Raw = typename X::Raw;
  static constexpr int kBytes = kVec8 * bits(kX) / 8;

  __device__ static float squares(const Raw (&raw)[2]) {
    float sum = 0.0f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float x[kVec8];
      X::decode(raw[half], x);
#pragma unroll
      for (int i = 0; i < kVec8; ++i) sum = fmaf(x[i], x[i], sum);
    }
    return sum;
  }

  __device__ void store(Raw (&raw)[2], float sum, const PairTurns& turns, std::byte* to) const {
    forget_numbers(raw);
    const float mean = sum * (1.0f / kNormedRowColumns);
    float a[kVec8];
    float b[kVec8];
    X::decode(raw[0], a);
    X::decode(raw[1], b);
    turns.apply(has_norm_ ? __frsqrt_rn(mean + epsilon_) : 1.0f, a, b);
    __builtin_assume(__isGlobal(to));
    store_vec8<kX>(to, a);
    store_vec8<kX>(to + kTurnLanes * kBytes, b);
  }

  // What was decoded for the sum is decoded again: two rows of it have no place.
  __device__ static void forget_numbers(Raw (&raw)[2]) {
#pragma unroll
    for (Raw& half : raw) asm volatile("" : "+r"(half.x), "+r"(half.y), "+r"(half.z), "+r"(half.w));
  }

  const TokenRows& rows_;
  int lane_bytes_;
  float epsilon_;
  bool has_norm_;
  Raw raw_[kTurnedAtATime][2];
};

template <DType kX>
__device__ inline void rotate_rows(const RopeParams& params, const RopeNorm& norm,
                                   const NormWeights& weights, const TokenRows& rows,
                                   int angle_row) {
  const int lane = static_cast<int>(threadIdx.x) % kTurnLanes;
  RowRotation<kX> rotation(params, norm, rows, lane);
  rotation.load(0);
  const PairTurns turns(params, weights, angle_row, lane);
#pragma unroll 1
  for (int first = 0; first < rows.count; first += kTurnedAtATime) {
    if (first > 0) rotation.load(first);
    rotation.finish(first, turns);
  }
}

}  // namespace quire::cuda::any::rope
