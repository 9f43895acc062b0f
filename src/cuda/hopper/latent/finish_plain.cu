// SPDX-License-Identifier: Apache-2.0
// A warp per new token, eight columns a lane: its row is read twice, the second time from L1, and
// written once. Statistics in double: the normalised number is rounded twice on its way to the cache.
#include "cuda/hopper/latent/finish_plain.h"
#include "cuda/rows/any_eight.cuh"
#include "cuda/rows/token_place.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {
namespace {

constexpr int kThreads = 128;
constexpr int kWarp = 32;

// On the way to 16 bits: cut off, with a last bit that remembers it, so that the rounding to come is
// the only one (rows/quotient.cuh).
__device__ float round_to_odd(double value) {
  const float lower = __double2float_rz(value);
  return static_cast<double>(lower) == value ? lower : __int_as_float(__float_as_int(lower) | 1);
}

__device__ float round_to(DType dtype, float value) {
  if (dtype == DType::bf16) return Eight<DType::bf16>::round(value);
  return dtype == DType::f16 ? Eight<DType::f16>::round(value) : value;
}

__device__ float round_to(DType dtype, double value) {
  if (dtype == DType::f32) return static_cast<float>(value);
  return round_to(dtype, round_to_odd(value));
}

template <DType kDType>
__device__ double normal_factor(const FinishPlainParams& params, const std::byte* source) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  double squares = 0.0;
  for (int column = kEight * lane; column < params.latent; column += kWarp * kEight) {
    float values[kEight];
    Eight<kDType>::decode(Eight<kDType>::load(source + 2 * column), values);
#pragma unroll
    for (const float value : values) squares += static_cast<double>(value) * value;
  }
  for (int step = kWarp / 2; step > 0; step /= 2) {
    squares += __shfl_xor_sync(0xffffffff, squares, step);
  }
  return 1.0 / sqrt(squares / params.latent + params.epsilon);
}

__device__ void normalise(const FinishPlainParams& params, int column, double factor,
                          float (&values)[kEight]) {
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    const float normal = round_to(params.gamma_dtype, values[i] * factor);
    values[i] = round_to(params.gamma_dtype,
                         normal * load_one(params.gamma, params.gamma_dtype, column + i));
  }
}

// A position past the table is the caller's mistake; it is not followed out of it.
__device__ void rotate(const LatentAngles& angles, std::int64_t position, int column,
                       float (&values)[kEight]) {
  const std::int64_t row = position < angles.max_pos ? position : angles.max_pos - 1;
#pragma unroll
  for (int i = 0; i < kEight; i += 2) {
    const std::int64_t at = row * angles.row_stride + column + i;
    const double cosine = load_one(angles.freqs, angles.dtype, at);
    const double sine = load_one(angles.freqs, angles.dtype, at + 1);
    const double a = values[i];
    const double b = values[i + 1];
    values[i] = round_to_odd(a * cosine - b * sine);
    values[i + 1] = round_to_odd(a * sine + b * cosine);
  }
}

template <DType kDType>
__global__ void __launch_bounds__(kThreads)
    finish_plain(const __grid_constant__ FinishPlainParams params) {
  cudaTriggerProgrammaticLaunchCompletion();
  const std::int64_t token = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  if (token >= params.tokens) return;
  const KvLayerView& view = params.view;
  const TokenPlace place =
      place_of_token(params.row_offsets, view.cache_lengths, view.batch, token);
  if (!place.exists()) return;
  std::byte* row = view.row(place.sequence, place.position, 0);
  if (row == nullptr) return;
  const std::byte* source = params.kv == nullptr ? row : params.kv + token * params.kv_token_bytes;
  const double factor = normal_factor<kDType>(params, source);
  const int width = view.row_format.width();
  for (int column = kEight * static_cast<int>(threadIdx.x % kWarp); column < width;
       column += kWarp * kEight) {
    float values[kEight];
    Eight<kDType>::decode(Eight<kDType>::load(source + 2 * column), values);
    if (column < params.latent) {
      normalise(params, column, factor, values);
    } else {
      rotate(params.angles, place.position, column - params.latent, values);
    }
    store_eight<kDType>(row + 2 * column, values);
  }
}

}  // namespace

void launch_finish_plain(const FinishPlainParams& params, cudaStream_t stream) {
  const LaunchShape shape{.grid = dim3(num_blocks(params.tokens * kWarp, kThreads)),
                          .block = dim3(kThreads)};
  const bool is_bf16 = params.view.row_format.parts[0].dtype == DType::bf16;
  launch(is_bf16 ? finish_plain<DType::bf16> : finish_plain<DType::f16>, shape, stream, params);
}

}  // namespace quire::cuda::hopper
