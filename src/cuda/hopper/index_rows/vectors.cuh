// SPDX-License-Identifier: Apache-2.0
// Rows of 64 or 128 columns: 4 or 8 lanes hold a row in registers, every byte is read and written
// once, in vectors of 16 (8 for codes). A block finds the places of its tokens while its rows are
// on their way.
#pragma once

#include "cuda/hopper/index_rows/row_steps.cuh"
#include "cuda/hopper/index_rows/target.cuh"
#include "cuda/rows/eight.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {

template <DType kXType, int kRowLanes, typename TargetType> struct IndexRowConfig {
  using Target = TargetType;
  static constexpr DType kX = kXType;
  static constexpr int kLanes = kRowLanes;
  static constexpr int kThreads = 256;
  static constexpr int kGroups = kThreads / kLanes;
  static constexpr int kRows = kX == DType::f32 ? 2 : 4;  // of a group, in flight
  static constexpr int kBlockRows = kGroups * kRows;
  static constexpr int kMinBlocks = Target::kHasNorm ? 2 : 3;  // of a multiprocessor
};

struct RowPlace {
  int token;  // of the block
  int head;
};

template <typename Config> class RowQuantizer {
 public:
  using X = Eight<Config::kX>;
  using Raw = typename X::Raw[kRowVectors];
  using Target = typename Config::Target;

  __device__ RowQuantizer(const IndexRowParams& params, const Target& target, int split)
      : params_(params),
        target_(target),
        columns_(threadIdx.x % Config::kLanes, split),
        is_first_(threadIdx.x % Config::kLanes == 0) {
    if (!is_normed()) return;
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
      load_vector(params.norm_weight, columns_.of(v), weight_[v]);
      load_vector(params.norm_bias, columns_.of(v), bias_[v]);
    }
  }

  __device__ bool is_first() const { return is_first_; }

  __device__ void load(const std::byte* row, Raw& raw) const {
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
      raw[v] = X::load(row + columns_.of(v) * (bits(Config::kX) / 8));
    }
  }

  __device__ void load_angles(std::int64_t position) {
    if (params_.freqs != nullptr && position >= 0) {
      hopper::load_angles(params_, columns_, position, angles_);
    }
  }

  // All lanes of a warp take part, whether their row is written or not.
  __device__ void store(const Raw& raw, const TokenTarget& token, int head, float gate) const {
    RowValues values;
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) X::decode(raw[v], values[v]);
    if (is_normed()) {
      normalize<Config::kLanes>(values, weight_, bias_, params_.epsilon);
    }
    if (params_.freqs != nullptr) rotate(params_, columns_, angles_, values);
    if (params_.hadamard) hadamard<Config::kLanes>(values);
    const float amax = largest_of_lanes<Config::kLanes>(largest(values)) * params_.hadamard_factor;
    if (token.position < 0) return;
    const float scale = row_scale(params_, amax);
    divide(values, scale);
    std::byte* codes = codes_of(target_, token, head);
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
      *reinterpret_cast<uint2*>(codes + columns_.of(v)) = encode_fp8<__NV_E4M3>(values[v]);
    }
    if (is_first_) store_scale(target_, token, head, scale * gate);
  }

 private:
  __device__ bool is_normed() const {
    return Target::kHasNorm && params_.norm_weight.data != nullptr;
  }

  __device__ static void load_vector(const IndexRowVector& from, int column,
                                     float (&values)[kEight]) {
    load_eight(from.data + column * (bits(from.dtype) / 8), from.dtype, values);
  }

  __device__ static float largest(const RowValues& values) {
    float amax = 0.0f;
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kEight; ++i) amax = fmaxf(amax, fabsf(values[v][i]));
    }
    return amax;
  }

  __device__ void divide(RowValues& values, float scale) const {
    const bool is_plain = has_plain_reciprocal(scale);
    const float factor = is_plain ? params_.hadamard_factor / scale : params_.hadamard_factor;
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kEight; ++i) values[v][i] *= factor;
    }
    if (is_plain) return;
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kEight; ++i) values[v][i] = divide_by(values[v][i], scale);
    }
  }

  const IndexRowParams& params_;
  const Target& target_;
  LaneColumns columns_;
  bool is_first_;
  RowValues weight_ = {};
  RowValues bias_ = {};
  RowValues angles_ = {};
};

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kMinBlocks)
    quantize_index_rows(const __grid_constant__ IndexRowParams params,
                        const __grid_constant__ typename Config::Target target, int split) {
  __shared__ TokenTarget tokens[Config::kBlockRows + 1];
  const auto heads = static_cast<int>(params.heads.value());
  const std::int64_t first = std::int64_t{blockIdx.x} * Config::kBlockRows;
  const std::int64_t first_token = params.heads.quotient_of(first);
  const auto skipped = static_cast<int>(first - first_token * heads);
  const std::int64_t left = params.tokens * heads - first;
  const int count = left < Config::kBlockRows ? static_cast<int>(left) : Config::kBlockRows;
  // Neighbouring rows, so that most of a group's are one token's and share its angles.
  const auto own = static_cast<int>(threadIdx.x) / Config::kLanes * Config::kRows;
  const auto place_of = [&](int row) -> RowPlace {
    const auto token = static_cast<int>(params.heads.quotient(skipped + row));
    return {token, skipped + row - token * heads};
  };

  RowQuantizer<Config> quantizer(params, target, split);
  typename RowQuantizer<Config>::Raw raw[Config::kRows] = {};
  float gates[Config::kRows] = {};
#pragma unroll
  for (int r = 0; r < Config::kRows; ++r) {
    if (own + r >= count) continue;
    const auto [token, head] = place_of(own + r);
    quantizer.load(params.x + (first_token + token) * params.token_bytes + head * params.head_bytes,
                   raw[r]);
    if (quantizer.is_first()) gates[r] = gate_of(target, first_token + token, head);
  }

  const int num_tokens = place_of(count - 1).token + 1;
  for (int t = threadIdx.x; t < num_tokens; t += Config::kThreads) {
    const TokenPlace place =
        place_of_token(params.row_offsets, params.cache_lengths, params.batch, first_token + t);
    tokens[t] = locate(target, place, first_token + t);
  }
  __syncthreads();

  int held = -1;  // the token whose angles the lane has
#pragma unroll
  for (int r = 0; r < Config::kRows; ++r) {
    TokenTarget token;  // rows past the end are nobody's: the shuffles stay whole
    int head = 0;
    if (own + r < count) {
      const RowPlace place = place_of(own + r);
      token = tokens[place.token];
      head = place.head;
      if (place.token != held) quantizer.load_angles(token.position);
      held = place.token;
    }
    quantizer.store(raw[r], token, head, gates[r]);
  }
}

template <typename Config>
void launch_config(const IndexRowParams& params, const typename Config::Target& target, int split,
                   cudaStream_t stream) {
  const std::int64_t rows = params.tokens * params.heads.value();
  launch(quantize_index_rows<Config>,
         {.grid = dim3(num_blocks(rows, Config::kBlockRows)), .block = dim3(Config::kThreads)},
         stream, params, target, split);
}

template <DType kX, typename Target>
void launch_type(const IndexRowParams& params, const Target& target, int split,
                 cudaStream_t stream) {
  if (params.columns == 64) {
    return launch_config<IndexRowConfig<kX, 4, Target>>(params, target, split, stream);
  }
  launch_config<IndexRowConfig<kX, 8, Target>>(params, target, split, stream);
}

// Where the lane's two vectors part: half-split pairs are in one lane.
inline int vector_split(const IndexRowParams& params) {
  const int distance = params.freqs != nullptr && !params.interleaved ? params.rope_dim / 2
                                                                      : params.columns / kRowVectors;
  int split = 0;
  while ((kEight << split) < distance) ++split;
  return split;
}

template <typename Target>
void launch_rows(const IndexRowParams& params, const Target& target, cudaStream_t stream) {
  const int split = vector_split(params);
  if (params.x_dtype == DType::bf16) {
    return launch_type<DType::bf16>(params, target, split, stream);
  }
  if (params.x_dtype == DType::f16) return launch_type<DType::f16>(params, target, split, stream);
  launch_type<DType::f32>(params, target, split, stream);
}

}  // namespace quire::cuda::hopper
