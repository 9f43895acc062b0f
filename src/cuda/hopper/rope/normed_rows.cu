// SPDX-License-Identifier: Apache-2.0
// Norm and rotation where a token's heads do not fill a warp: the rows of all tokens follow each other,
// 32 to a warp at a time. Rows of 128 half-split columns: a lane holds the eight of each half that belong
// together.
#include <algorithm>

#include "cuda/hopper/rope/angles.cuh"
#include "cuda/hopper/rope/norm_weights.cuh"
#include "cuda/rows/divisor.h"
#include "cuda/rows/token_finder.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {
namespace {

constexpr int kThreads = 128;
constexpr int kWarp = 32;
constexpr int kBlocksPerSm = 5;
constexpr int kLanes = kNormedRowColumns / (2 * kEight);  // that share a row
constexpr int kStepRows = kWarp / kLanes;
constexpr int kSteps = 2;  // rows of a lane in flight
constexpr unsigned kAll = 0xffffffffu;

struct BlockWeights {
  NormWeights query;
  NormWeights key;
};

// Angles of the tokens whose rows a warp has in flight. A lane's eight pairs would be four loads that each
// take a part of every sector; so a token's pairs are loaded as they stand, and put where neighbouring
// lanes find theirs side by side.
class WarpAngles {
 public:
  static constexpr int kVectors = kEight / 2;  // of two pairs, in a lane
  static constexpr int kMostTokens = kSteps * kStepRows;

  __device__ void fill(const RopeAngles& angles, int token, int row) {
    const int vector = threadIdx.x % kWarp;
    const auto* from = reinterpret_cast<const float4*>(
        reinterpret_cast<const float*>(angles.freqs) + row * angles.row_stride);
    vectors_[token][vector % kVectors][vector / kVectors] = __ldg(from + vector);
  }
  __device__ float4 pairs(int token, int vector, int lane) const {
    return vectors_[token][vector][lane];
  }

 private:
  float4 vectors_[kMostTokens][kVectors][kLanes];
};

// What is known of a row; a lane each.
struct RowPlace {
  const std::byte* from = nullptr;  // null: the row is nobody's
  std::byte* to = nullptr;
  int token = 0;
  int angles = 0;  // row of freqs_cis · 2, + 1 for a key
};

__device__ RowPlace row_place(const RopeParams& params, const TokenFinder& finder,
                              const Divisor& per_token, unsigned index, unsigned rows) {
  const unsigned own = min(index, rows - 1);
  const auto token = static_cast<std::int64_t>(per_token.quotient(own));
  const int head = static_cast<int>(own - token * per_token.value());
  const TokenPlace place = finder.find(token);
  RowPlace row{.token = static_cast<int>(token)};
  if (!place.exists() || index >= rows) return row;
  row.angles = 2 * static_cast<int>(angle_row(params.angles, token, place.position, 0));
  if (head < params.heads) {
    row.from = params.q + token * params.q_token_bytes + head * params.q_head_bytes;
    row.to = params.out + token * params.out_token_bytes + head * params.out_head_bytes;
    return row;
  }
  std::byte* keys = first_row(params.key, place);
  if (keys == nullptr) return row;
  keys += (head - params.heads) * params.key.head_stride_bytes +
          params.key.row_format.parts[0].offset_bytes;
  row.from = row.to = keys;
  row.angles += 1;
  return row;
}

__device__ RowPlace place_of_lane(const RowPlace& own, int lane) {
  const auto from = __shfl_sync(kAll, reinterpret_cast<unsigned long long>(own.from), lane);
  const auto to = __shfl_sync(kAll, reinterpret_cast<unsigned long long>(own.to), lane);
  auto* source = reinterpret_cast<const std::byte*>(from);
  auto* target = reinterpret_cast<std::byte*>(to);
  __builtin_assume(__isGlobal(source));
  __builtin_assume(__isGlobal(target));
  return {source, target, __shfl_sync(kAll, own.token, lane), __shfl_sync(kAll, own.angles, lane)};
}

// One row's columns of a lane, on their way and finished.
template <DType kX> class LaneRow {
 public:
  __device__ void load(const RowPlace& place, int lane) {
    place_ = place;
    raw_[0] = raw_[1] = {};
    if (place.from == nullptr) return;
    raw_[0] = X::load(place.from + lane * kBytes);
    raw_[1] = X::load(place.from + (kLanes + lane) * kBytes);
  }

  // Of the lane's columns.
  __device__ float squares() const {
    float sum = 0.0f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float x[kEight];
      X::decode(raw_[half], x);
#pragma unroll
      for (int i = 0; i < kEight; ++i) sum = fmaf(x[i], x[i], sum);
    }
    return sum;
  }

  __device__ void finish(const RopeParams& params, const BlockWeights& weights,
                         const WarpAngles& angles, int first_token, float sum, int lane) const {
    if (place_.to == nullptr) return;
    const bool is_key = (place_.angles & 1) != 0;
    const RopeNorm& norm = is_key ? params.key_norm : params.q_norm;
    float x[2][kEight];
    X::decode(raw_[0], x[0]);
    X::decode(raw_[1], x[1]);
    if (norm.gamma != nullptr) {
      const float mean = sum * (1.0f / kNormedRowColumns);
      const float factor = __frsqrt_rn(mean + static_cast<float>(params.epsilon));
      const NormWeights& gamma = is_key ? weights.key : weights.query;
      gamma.scale(lane * kEight, factor, x[0]);
      gamma.scale((kLanes + lane) * kEight, factor, x[1]);
    }
#pragma unroll
    for (int i = 0; i < WarpAngles::kVectors; ++i) {
      const float4 two = angles.pairs(place_.token - first_token, i, lane);
      rotate_pair(x[0][2 * i], x[1][2 * i], two.x, two.y);
      rotate_pair(x[0][2 * i + 1], x[1][2 * i + 1], two.z, two.w);
    }
    store_eight<kX>(place_.to + lane * kBytes, x[0]);
    store_eight<kX>(place_.to + (kLanes + lane) * kBytes, x[1]);
  }

 private:
  using X = Eight<kX>;
  static constexpr int kBytes = kEight * bits(kX) / 8;

  RowPlace place_;
  typename X::Raw raw_[2];
};

// The angles of the tokens to which rows [first, first + kSteps · kStepRows) of the warp's 32 belong.
__device__ int fill_angles(const RopeParams& params, const Divisor& per_token, const RowPlace& own,
                           int first, unsigned first_row, WarpAngles& angles) {
  const int first_token = __shfl_sync(kAll, own.token, first);
  const int last_token = __shfl_sync(kAll, own.token, first + kSteps * kStepRows - 1);
  __syncwarp();
  for (int token = first_token; token <= last_token; ++token) {
    const int head_0 = static_cast<int>(token * per_token.value() - first_row);
    const int row = __shfl_sync(kAll, own.angles, max(head_0, first)) >> 1;
    angles.fill(params.angles, token - first_token, row);
  }
  return first_token;
}

// 32 rows from `first_row` on, whose places the lanes know. `meanwhile` is called when the first of them
// are on their way.
template <DType kX, typename Meanwhile>
__device__ void rotate_rows(const RopeParams& params, const BlockWeights& weights,
                            const Divisor& per_token, const RowPlace& own, unsigned first_row,
                            WarpAngles& angles, const Meanwhile& meanwhile) {
  const int lane = threadIdx.x % kLanes;
  const int row = threadIdx.x % kWarp / kLanes;
  for (int first = 0; first < kWarp; first += kSteps * kStepRows) {
    LaneRow<kX> rows[kSteps];
    float sums[kSteps];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      rows[s].load(place_of_lane(own, first + s * kStepRows + row), lane);
    }
    const int first_token = fill_angles(params, per_token, own, first, first_row, angles);
    if (first == 0) meanwhile();
#pragma unroll
    for (int s = 0; s < kSteps; ++s) sums[s] = rows[s].squares();
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2) {
#pragma unroll
      for (float& sum : sums) sum += __shfl_xor_sync(kAll, sum, step);
    }
    __syncwarp();
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      rows[s].finish(params, weights, angles, first_token, sums[s], lane);
    }
  }
}

template <DType kX>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    normalize_and_rotate_rows(const __grid_constant__ RopeParams params,
                              const __grid_constant__ Divisor per_token) {
  __shared__ BlockWeights weights;
  __shared__ WarpAngles angles[kThreads / kWarp];
  const TokenFinder finder(params.row_offsets, params.key.cache_lengths, params.key.batch);
  weights.query.fill(params.q_norm, static_cast<float>(params.weight_offset));
  weights.key.fill(params.key_norm, static_cast<float>(params.weight_offset));
  __syncthreads();
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned rows = static_cast<unsigned>(params.tokens) * per_token.value();
  unsigned first = blockIdx.x * kThreads + threadIdx.x - lane;
  RowPlace own = row_place(params, finder, per_token, first + lane, rows);
  while (first < rows) {
    RowPlace next;
    const unsigned behind = first + gridDim.x * kThreads;
    rotate_rows<kX>(params, weights, per_token, own, first, angles[threadIdx.x / kWarp],
                    [&] { next = row_place(params, finder, per_token, behind + lane, rows); });
    own = next;
    first = behind;
  }
}

template <DType kX> void launch_rows(const RopeParams& params, int sms, cudaStream_t stream) {
  const auto per_token = static_cast<unsigned>(params.heads + params.key_heads);
  const std::int64_t blocks =
      std::min<std::int64_t>(kBlocksPerSm * sms, num_blocks(params.tokens * per_token, kThreads));
  launch(normalize_and_rotate_rows<kX>,
         {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads)}, stream, params,
         Divisor(per_token));
}

}  // namespace

void launch_normed_rows(const RopeParams& params, int sms, cudaStream_t stream) {
  if (params.q_dtype == DType::bf16) return launch_rows<DType::bf16>(params, sms, stream);
  launch_rows<DType::f16>(params, sms, stream);
}

}  // namespace quire::cuda::hopper
