// SPDX-License-Identifier: Apache-2.0
// Rows of 64 or 128 columns, none or half of them turned: 2 or 4 lanes hold a row in registers, every
// byte is read and written once, in vectors of 16 (8 for codes). A block finds the places of its
// tokens while its first rows are on their way, and a group of lanes has its next row on the way
// while it works on one.
#pragma once

#include <algorithm>

#include "cuda/hopper/index_rows/row_steps.cuh"
#include "cuda/hopper/index_rows/target.cuh"
#include "cuda/rows/eight.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {

template <DType kXType, int kRowLanes, typename TargetType> struct IndexRowConfig {
  using Target = TargetType;
  static constexpr DType kX = kXType;
  static constexpr int kLanes = kRowLanes;
  static constexpr int kColumns = kRowColumns<kLanes>;
  static constexpr int kThreads = 128;
  static constexpr int kGroups = kThreads / kLanes;
  // Rows of a group, one after the other: keys, each a token of its own, have the longer start.
  static constexpr int kMostRows = Target::kHasNorm ? 8 : 4;
  // Of a multiprocessor, by the registers that a row of f32 or a norm take.
  static constexpr int kMinBlocks = Target::kHasNorm || kX == DType::f32 ? 4 : 5;
  // Every key is a token of its own: its angles would be waited for in every row.
  static constexpr bool kAnglesAhead = Target::kHasNorm;
  static constexpr int kNormColumns = Target::kHasNorm ? kColumns : 1;
};

// A row of the block, and where a lane reads it.
struct RowCursor {
  int token;
  int head;
  const std::byte* x;

  __device__ RowCursor(const IndexRowParams& params, std::int64_t first_token, int token, int head)
      : token(token),
        head(head),
        x(params.x + (first_token + token) * params.token_bytes + head * params.head_bytes) {}
  __device__ void advance(const IndexRowParams& params, int heads) {
    x += params.head_bytes;
    if (++head < heads) return;
    x += params.token_bytes - heads * params.head_bytes;
    head = 0;
    ++token;
  }
};

template <typename Config> class RowQuantizer {
 public:
  using X = Eight<Config::kX>;
  using Raw = typename X::Raw[kRowVectors];
  using Target = typename Config::Target;

  __device__ RowQuantizer(const IndexRowParams& params, const Target& target, const float* norm)
      : params_(params), target_(target), lane_(threadIdx.x % Config::kLanes), norm_(norm) {
    // Kept in a register: worked out again at every use, it is a tenth of a row's instructions.
    asm volatile("" : "+r"(lane_));
    norm_ += lane_ * kEight;
  }

  __device__ int lane() const { return lane_; }

  // x: at the lane's first column.
  __device__ void load(const std::byte* x, Raw& raw) const {
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) raw[v] = X::load(x + v * kStep * (bits(Config::kX) / 8));
  }

  __device__ static void copy(const Raw& from, Raw& to) {
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) to[v] = from[v];
  }

  __device__ void load_angles(std::int64_t position, RowAngles& angles) const {
    if (params_.freqs == nullptr || position < 0) return;
    hopper::load_angles<Config::kLanes>(params_, lane_, position, angles);
  }

  // All lanes of a warp take part, whether their row is written or not.
  __device__ void store(const Raw& raw, const RowAngles& angles, const TokenTarget& token, int head,
                        float gate) const {
    RowValues values;
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) X::decode(raw[v], values[v]);
    if (Target::kHasNorm && params_.norm_weight.data != nullptr) {
      normalize<Config::kLanes>(values, norm_, params_.epsilon);
    }
    if (params_.freqs != nullptr) rotate(params_.interleaved, angles, values);
    if (params_.hadamard) hadamard<Config::kLanes>(values);
    const float amax = largest_of_lanes<Config::kLanes>(largest(values)) * params_.hadamard_factor;
    if (token.position < 0) return;
    const float scale = row_scale(params_.rounding, amax);
    divide(values, scale);
    std::byte* codes = codes_of(target_, token, head) + lane_ * kEight;
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
      *reinterpret_cast<uint2*>(codes + v * kStep) = encode_fp8<__NV_E4M3>(values[v]);
    }
    if (lane_ == 0) store_scale(target_, token, head, scale * gate);
  }

 private:
  static constexpr int kStep = Config::kLanes * kEight;  // columns between a lane's vectors

  __device__ static float largest(const RowValues& values) {
    float amax[kRowVectors] = {};
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
#pragma unroll
      for (int v = 0; v < kRowVectors; ++v) amax[v] = fmaxf(amax[v], fabsf(values[v][i]));
    }
    return fmaxf(fmaxf(amax[0], amax[1]), fmaxf(amax[2], amax[3]));
  }

  __device__ static void multiply(RowValues& values, float factor) {
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kEight; ++i) values[v][i] *= factor;
    }
  }

  // By a reciprocal, which is exact for powers of two. Scales near f32's smallest have none: then
  // numbers and scale are raised first. A scale of 0 makes 0 of every number; NaN stays.
  __device__ void divide(RowValues& values, float scale) const {
    constexpr float kRaise = 0x1p+80f;
    if (scale < 0x1p-100f) {
      scale *= kRaise;
      multiply(values, kRaise);
    }
    multiply(values, scale == 0.0f ? 0.0f : __fdividef(params_.hadamard_factor, scale));
  }

  const IndexRowParams& params_;
  const Target& target_;
  int lane_;
  const float* norm_;  // shared
};

__device__ inline void copy(const RowAngles& from, RowAngles& to) {
#pragma unroll
  for (int v = 0; v < kTurnedVectors; ++v) {
#pragma unroll
    for (int i = 0; i < kEight; ++i) to[v][i] = from[v][i];
  }
}

// LayerNorm's weight and bias as f32.
template <typename Config>
__device__ inline void load_norm(const IndexRowParams& params,
                                 float (&norm)[2 * Config::kNormColumns]) {
  if constexpr (!Config::Target::kHasNorm) return;
  if (params.norm_weight.data == nullptr) return;
  for (int i = threadIdx.x; i < Config::kNormColumns; i += Config::kThreads) {
    norm[i] = load_float(params.norm_weight.data, params.norm_weight.dtype, i);
    norm[Config::kNormColumns + i] = load_float(params.norm_bias.data, params.norm_bias.dtype, i);
  }
}

// A thread for each of `count` tokens.
template <typename Config>
__device__ inline void find_tokens(const IndexRowParams& params,
                                   const typename Config::Target& target, std::int64_t first_token,
                                   int count, TokenTarget* tokens) {
  for (int t = threadIdx.x; t < count; t += Config::kThreads) {
    const TokenPlace place =
        place_of_token(params.row_offsets, params.cache_lengths, params.batch, first_token + t);
    tokens[t] = locate(target, place, first_token + t);
  }
}

// A group of lanes takes group_rows neighbouring rows, so that most of them are one token's and share
// its angles. The loop is not unrolled: its body fills a good part of the instruction cache.
template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kMinBlocks)
    quantize_index_rows(const __grid_constant__ IndexRowParams params,
                        const __grid_constant__ typename Config::Target target, int group_rows) {
  __shared__ TokenTarget tokens[Config::kGroups * Config::kMostRows + 1];
  __shared__ alignas(16) float norm[2 * Config::kNormColumns];
  const auto heads = static_cast<int>(params.heads.value());
  const int block_rows = Config::kGroups * group_rows;
  const std::int64_t first = std::int64_t{blockIdx.x} * block_rows;
  const std::int64_t first_token = params.heads.quotient_of(first);
  const auto skipped = static_cast<int>(first - first_token * heads);
  const std::int64_t left = params.tokens * heads - first;
  const int count = left < block_rows ? static_cast<int>(left) : block_rows;
  const auto token_of = [&](int row) {
    return static_cast<int>(params.heads.quotient(skipped + row));
  };

  RowQuantizer<Config> quantizer(params, target, norm);
  typename RowQuantizer<Config>::Raw next = {};
  const auto own = static_cast<int>(threadIdx.x) / Config::kLanes * group_rows;
  const int last = min(own + group_rows, count);
  RowCursor at(params, first_token, token_of(own), skipped + own - token_of(own) * heads);
  at.x += quantizer.lane() * kEight * (bits(Config::kX) / 8);
  if (own < last) quantizer.load(at.x, next);
  load_norm<Config>(params, norm);
  find_tokens<Config>(params, target, first_token, token_of(count - 1) + 1, tokens);
  __syncthreads();

  int held = -1;  // the token whose angles are there, or on their way
  RowAngles angles = {};
  RowAngles ahead = {};  // keys: the next row's
  if (Config::kAnglesAhead && own < last) {
    held = at.token;
    quantizer.load_angles(tokens[held].position, ahead);
  }
#pragma unroll 1
  for (int row = own; row < own + group_rows; ++row) {
    typename RowQuantizer<Config>::Raw raw;
    RowQuantizer<Config>::copy(next, raw);
    if constexpr (Config::kAnglesAhead) copy(ahead, angles);
    const RowCursor here = at;
    at.advance(params, heads);
    if (row + 1 < last) quantizer.load(at.x, next);
    TokenTarget place;  // rows past the end are nobody's: the shuffles stay whole
    float gate = 0.0f;
    if (row < last) {
      place = tokens[here.token];
      if (!Config::kAnglesAhead && here.token != held) {
        held = here.token;
        quantizer.load_angles(place.position, angles);
      }
      if (quantizer.lane() == 0) gate = gate_of(target, place, here.head);
    }
    if (Config::kAnglesAhead && row + 1 < last && at.token != held) {
      held = at.token;
      quantizer.load_angles(tokens[held].position, ahead);
    }
    quantizer.store(raw, angles, place, here.head, gate);
  }
}

// Several blocks for each place that a multiprocessor has, before a group takes a second row.
template <typename Config>
void launch_config(const IndexRowParams& params, const typename Config::Target& target,
                   const IndexRowLaunch& launched) {
  const std::int64_t rows = params.tokens * params.heads.value();
  const std::int64_t wanted = std::int64_t{launched.num_sms} * Config::kMinBlocks * 2;
  const std::int64_t group_rows =
      std::clamp<std::int64_t>(rows / (Config::kGroups * wanted), 1, Config::kMostRows);
  launch(quantize_index_rows<Config>,
         {.grid = dim3(num_blocks(rows, Config::kGroups * group_rows)),
          .block = dim3(Config::kThreads)},
         launched.stream, params, target, static_cast<int>(group_rows));
}

template <DType kX, typename Target>
void launch_type(const IndexRowParams& params, const Target& target,
                 const IndexRowLaunch& launched) {
  if (params.columns == kRowColumns<2>) {
    return launch_config<IndexRowConfig<kX, 2, Target>>(params, target, launched);
  }
  launch_config<IndexRowConfig<kX, 4, Target>>(params, target, launched);
}

template <typename Target>
void launch_rows(const IndexRowParams& params, const Target& target,
                 const IndexRowLaunch& launched) {
  if (params.x_dtype == DType::bf16) return launch_type<DType::bf16>(params, target, launched);
  if (params.x_dtype == DType::f16) return launch_type<DType::f16>(params, target, launched);
  launch_type<DType::f32>(params, target, launched);
}

}  // namespace quire::cuda::hopper
