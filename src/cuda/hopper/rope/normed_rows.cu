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
constexpr int kBlocksPerSm = 7;
constexpr int kLanes = kNormedRowColumns / (2 * kEight);  // that share a row
constexpr int kStepRows = kWarp / kLanes;
constexpr unsigned kAll = 0xffffffffu;

struct BlockWeights {
  NormWeights query;
  NormWeights key;
};

// What is known of a row; a lane each.
struct RowPlace {
  const std::byte* from = nullptr;  // null: the row is nobody's
  std::byte* to = nullptr;
  int angles = 0;  // row of freqs_cis · 2, + 1 for a key
};

__device__ RowPlace row_place(const RopeParams& params, const TokenFinder& finder,
                              const Divisor& per_token, unsigned index, unsigned rows) {
  const unsigned own = min(index, rows - 1);
  const auto token = static_cast<std::int64_t>(per_token.quotient(own));
  const int head = static_cast<int>(own - token * per_token.value());
  const TokenPlace place = finder.find(token);
  RowPlace row;
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
  return {source, target, __shfl_sync(kAll, own.angles, lane)};
}

// One row's columns of a lane, on their way and finished.
template <DType kX> class LaneRow {
 public:
  __device__ void load(const RopeParams& params, const RowPlace& place, int lane) {
    place_ = place;
    raw_[0] = raw_[1] = {};
    if (place.from == nullptr) return;
    raw_[0] = X::load(place.from + lane * kBytes);
    raw_[1] = X::load(place.from + (kLanes + lane) * kBytes);
    const auto* angles = reinterpret_cast<const float4*>(
        reinterpret_cast<const float*>(params.angles.freqs) +
        (place.angles >> 1) * params.angles.row_stride + 2 * kEight * lane);
#pragma unroll
    for (int i = 0; i < kEight / 2; ++i) angles_[i] = __ldg(angles + i);
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

  __device__ void finish(const RopeParams& params, const BlockWeights& weights, float sum,
                         int lane) const {
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
    for (int i = 0; i < kEight / 2; ++i) {
      rotate_pair(x[0][2 * i], x[1][2 * i], angles_[i].x, angles_[i].y);
      rotate_pair(x[0][2 * i + 1], x[1][2 * i + 1], angles_[i].z, angles_[i].w);
    }
    store_eight<kX>(place_.to + lane * kBytes, x[0]);
    store_eight<kX>(place_.to + (kLanes + lane) * kBytes, x[1]);
  }

 private:
  using X = Eight<kX>;
  static constexpr int kBytes = kEight * bits(kX) / 8;

  RowPlace place_;
  typename X::Raw raw_[2];
  float4 angles_[kEight / 2];
};

// 32 rows, whose places the lanes know. `meanwhile` is called when the first of them are on their way.
template <DType kX, typename Meanwhile>
__device__ void rotate_rows(const RopeParams& params, const BlockWeights& weights,
                            const RowPlace& own, const Meanwhile& meanwhile) {
  const int lane = threadIdx.x % kLanes;
  const int row = threadIdx.x % kWarp / kLanes;
  for (int first = 0; first < kWarp; first += kStepRows) {
    LaneRow<kX> step;
    step.load(params, place_of_lane(own, first + row), lane);
    if (first == 0) meanwhile();
    float sum = step.squares();
#pragma unroll
    for (int other = kLanes / 2; other > 0; other /= 2) {
      sum += __shfl_xor_sync(kAll, sum, other);
    }
    step.finish(params, weights, sum, lane);
  }
}

template <DType kX>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    normalize_and_rotate_rows(const __grid_constant__ RopeParams params,
                              const __grid_constant__ Divisor per_token) {
  __shared__ BlockWeights weights;
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
    rotate_rows<kX>(params, weights, own,
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
