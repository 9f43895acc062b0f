// SPDX-License-Identifier: Apache-2.0
// Norm and rotation in one pass. A row stays whole in the registers of its lanes: vector v (columns
// 8v to 8v + 7) is in slot v / lanes of lane v % lanes. With half-split pairs lanes = rope_dim / 16,
// so that slots 0 and 1 of a lane hold the two halves of its pairs.
#include <algorithm>

#include "cuda/hopper/rope/angles.cuh"
#include "cuda/hopper/rope/norm_weights.cuh"
#include "cuda/hopper/rope/token_walk.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;

enum class Pairing : std::uint8_t { half_split, interleaved };

// kLaneBytes: of rows that a lane has in flight; with more than 128 f32 spills registers. How the angles stand is
// asked at run time.
template <DType kXType, Pairing kPairsStand, int kLaneSlots, int kLaneBytes = 128>
struct NormedConfig {
  static constexpr DType kX = kXType;
  static constexpr bool kIsSplit = kPairsStand == Pairing::half_split;
  static constexpr int kSlots = kLaneSlots;
  static constexpr int kSteps = kLaneBytes / (kSlots * kEight * (bits(kX) / 8));
  // As many as their registers allow.
  static constexpr int kBlocksPerSm = kLaneBytes == 64 ? 3 : bits(kX) == 32 && kSlots > 2 ? 1 : 2;
};

struct BlockWeights {
  NormWeights query;
  NormWeights key;
};

// What a row's head says of it.
struct RowKind {
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
    position_ = place.position;
    if constexpr (Config::kIsSplit) {
      find_angles(lane_ * kEight, cosines_, sines_);
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
  static constexpr int kBytes = bits(Config::kX) / 8;

  __device__ int head(int step) const {
    return first_head_ + step * (kWarp / lanes_);
  }
  __device__ int column(int slot) const {
    return (slot * lanes_ + lane_) * kEight;
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
  __device__ RowKind kind(int step) const {
    if (head(step) < params_.heads) {
      return {params_.q_norm, weights_.query, params_.head_dim, false};
    }
    return {params_.key_norm, weights_.key, params_.key_width, true};
  }

  __device__ void load(const std::byte* row, int width, Raw& raw) const {
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      if (column(s) < width) raw[s] = X::load(row + column(s) * kBytes);
    }
  }

  template <int kPairs>
  __device__ void find_angles(int first, float (&cosines)[kPairs], float (&sines)[kPairs]) const {
    if (params_.angles.stand_in_rows()) {
      load_angles<AngleTable::rows>(params_.angles, token_, position_, first, cosines, sines);
    } else {
      load_angles<AngleTable::any>(params_.angles, token_, position_, first, cosines, sines);
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
      float x[kEight];
      X::decode(raw[s], x);
      if (column(s) >= columns) continue;
#pragma unroll
      for (int i = 0; i < kEight; ++i) sum = fmaf(x[i], x[i], sum);
    }
    return sum;
  }

  __device__ void finish(int step, std::byte* out, const Raw& raw, float sum) const {
    const RowKind row = kind(step);
    float x[Config::kSlots][kEight];
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

  __device__ void rotate(const RowKind& row, float (&x)[Config::kSlots][kEight]) const {
    if constexpr (Config::kIsSplit) {
#pragma unroll
      for (int j = 0; j < kEight; ++j) rotate_pair(x[0][j], x[1][j], cosines_[j], sines_[j]);
    } else {
#pragma unroll
      for (int s = 0; s < Config::kSlots; ++s) {
        const int first = column(s) - (row.width - params_.rope_dim);
        if (first < 0 || column(s) >= row.width) continue;
        float cosines[kEight / 2];
        float sines[kEight / 2];
        find_angles(first / 2, cosines, sines);
#pragma unroll
        for (int j = 0; j < kEight / 2; ++j) {
          rotate_pair(x[s][2 * j], x[s][2 * j + 1], cosines[j], sines[j]);
        }
      }
    }
  }

  // Columns that do not change keep their bits; in a key they are not even written.
  __device__ void store(const RowKind& row, const Raw& raw,
                        const float (&x)[Config::kSlots][kEight], std::byte* out) const {
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
  std::int64_t position_ = 0;
  int first_head_ = 0;          // q's heads, then the key's
  float cosines_[kEight] = {};  // half-split: of the lane's pairs
  float sines_[kEight] = {};
};

template <typename Config>
__global__ void __launch_bounds__(kThreads, Config::kBlocksPerSm)
    normalize_and_rotate(const __grid_constant__ RopeParams params,
                         const __grid_constant__ ChunkShare share, int lanes) {
  __shared__ BlockWeights weights;
  TokenWalk walk(params, share);
  weights.query.fill(params.q_norm, static_cast<float>(params.weight_offset));
  weights.key.fill(params.key_norm, static_cast<float>(params.weight_offset));
  __syncthreads();
  NormedRotation<Config> rotation(params, weights, lanes);
  while (walk.advance()) rotation.run(walk);
}

template <typename Config>
void launch_config(const RopeParams& params, int lanes, int sms, cudaStream_t stream) {
  const int per_chunk = NormedRotation<Config>::heads_per_chunk(lanes);
  const int chunks = (params.heads + params.key_heads + per_chunk - 1) / per_chunk;
  const std::int64_t blocks = std::min<std::int64_t>(
      Config::kBlocksPerSm * sms, num_blocks(params.tokens * chunks * kWarp, kThreads));
  launch(normalize_and_rotate<Config>,
         {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads)}, stream, params,
         ChunkShare{.per_token = Divisor(static_cast<unsigned>(chunks)),
                    .chunks = static_cast<int>(params.tokens * chunks)},
         lanes);
}

template <DType kX, Pairing kPairing>
void launch_slots(const RopeParams& params, const NormedLayout& layout, int sms,
                  cudaStream_t stream) {
  if constexpr (bits(kX) == 16 && kPairing == Pairing::half_split) {
    // Fewer rows in flight and half as many warps again: better by a seventh, unless that makes more
    // chunks of heads that are not full.
    using Usual = NormedConfig<kX, kPairing, 2, 64>;
    const int per_chunk = NormedRotation<Usual>::heads_per_chunk(layout.lanes);
    if (layout.slots <= 2 && (params.heads + params.key_heads) % per_chunk == 0) {
      return launch_config<Usual>(params, layout.lanes, sms, stream);
    }
  }
  if (layout.slots <= 2) {
    return launch_config<NormedConfig<kX, kPairing, 2>>(params, layout.lanes, sms, stream);
  }
  launch_config<NormedConfig<kX, kPairing, 4>>(params, layout.lanes, sms, stream);
}

template <DType kX>
void launch_for(const RopeParams& params, const NormedLayout& layout, int sms,
                cudaStream_t stream) {
  if (params.interleaved) {
    return launch_slots<kX, Pairing::interleaved>(params, layout, sms, stream);
  }
  launch_slots<kX, Pairing::half_split>(params, layout, sms, stream);
}

}  // namespace

void launch_normed(const RopeParams& params, const NormedLayout& layout, int sms,
                   cudaStream_t stream) {
  if (params.q_dtype == DType::bf16) return launch_for<DType::bf16>(params, layout, sms, stream);
  if (params.q_dtype == DType::f16) return launch_for<DType::f16>(params, layout, sms, stream);
  launch_for<DType::f32>(params, layout, sms, stream);
}

}  // namespace quire::cuda::hopper
