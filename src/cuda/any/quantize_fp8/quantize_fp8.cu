// SPDX-License-Identifier: Apache-2.0
// quantize_fp8: rows in registers, with groups inside a warp (lane groups) or one group per row and CTA (whole rows); any
// other group is a warp's, which reads it twice.
#include <algorithm>
#include <bit>
#include <cmath>

#include "cuda/any/companions.h"
#include "cuda/common/rows/divisor.h"
#include "cuda/common/rows/granule_coder.cuh"
#include "cuda/common/rows/scale_number.cuh"
#include "cuda/common/runtime/alignment.h"
#include "cuda/common/runtime/device_scope.h"
#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/dependent_launch.cuh"
#include "cuda/common/thread/warp_reduce.cuh"
#include "quire/element.h"

namespace quire::cuda::any::quantize_fp8 {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kVectors = 4;  // of a thread in lane groups, all in flight at once

struct QuantizeParams {
  const std::byte* x;  // [rows, columns]
  DType x_dtype;
  std::int64_t x_stride_bytes;
  std::byte* out;  // fp8 [rows, columns]
  DType out_dtype;
  std::int64_t out_stride_bytes;
  std::byte* scale;  // f32 or e8m0 [rows, groups]
  DType scale_dtype;
  std::int64_t scale_row_stride;  // elements
  std::int64_t scale_group_stride;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t group_size;
  float largest_amax;  // amax beyond it gets capped_scale: the bound need not be an f32
  float capped_scale;
  ScaleRounding rounding;
};

// The scale of a group from its largest magnitude, exactly as the op's header has it.

// The smallest power of two s with s · max_finite >= amax: the comparison is exact, where rounding
// the quotient first might hide that it lies just above a power of two. `quotient` is
// amax / max_finite, to nearest.
__device__ inline float power_of_two_scale(float quotient, float amax, float max_finite) {
  constexpr float kSmallest = 0x1p-33f;                                    // 2^ceil(log2(1e-10))
  if (!(amax <= 0x1.fffffep+127f)) return amax;                            // infinity
  float scale = __uint_as_float(__float_as_uint(quotient) & 0x7f800000u);  // rounded down
  if (scale < kSmallest) scale = kSmallest;
  if (scale * max_finite < amax) scale *= 2.0f;
  return scale;
}

// Of a group whose amax lies above the bound.
__device__ inline float bounded_scale(const QuantizeParams& params) {
  if (params.rounding == ScaleRounding::exact) return params.capped_scale;
  // capped_scale is a rounded quotient, but of a bound that the user chose, once per call.
  float scale = __uint_as_float(__float_as_uint(params.capped_scale) & 0x7f800000u);
  if (scale < 0x1p-33f) scale = 0x1p-33f;
  return scale < params.capped_scale ? 2.0f * scale : scale;
}

__device__ inline float chosen_scale(const QuantizeParams& params, float amax) {
  if (amax > params.largest_amax) return bounded_scale(params);
  const float max_finite = max_finite_of(params.out_dtype);
  const float quotient = __fdiv_rn(amax, max_finite);
  if (params.rounding == ScaleRounding::exact) return quotient;
  return power_of_two_scale(quotient, amax, max_finite);
}

// e8m0 has no infinity: the group is divided by the scale that it keeps.
__device__ inline float group_scale(const QuantizeParams& params, float amax) {
  const float scale = chosen_scale(params, amax);
  return params.scale_dtype == DType::e8m0 ? fminf(scale, 0x1p+127f) : scale;
}

__device__ inline void store_group_scale(const QuantizeParams& params, std::int64_t row,
                                         std::int64_t group, float scale) {
  const std::int64_t element = row * params.scale_row_stride + group * params.scale_group_stride;
  if (params.scale_dtype == DType::e8m0) {
    params.scale[element] = static_cast<std::byte>(encode_e8m0(scale));
  } else {
    reinterpret_cast<float*>(params.scale)[element] = scale;
  }
}

// A function of its own, so that what every group needs lies together.
template <DType kX, DType kOut>
__device__ __noinline__ GranuleCodes encode_rare_group(const QuantizeParams& params,
                                                       typename Vec8<kX>::Raw raw, float amax) {
  return GranuleCoder<kX, kOut>::encode_long(raw, amax, group_scale(params, amax));
}

// Eight numbers of a group with the same scale.
template <DType kX, DType kOut>
__device__ inline GranuleCodes encode_group(const QuantizeParams& params,
                                            const typename Vec8<kX>::Raw& raw, float amax) {
  using Coder = GranuleCoder<kX, kOut>;
  if constexpr (bits(kX) == 32) return Coder::encode_long(raw, amax, group_scale(params, amax));
  if (!Coder::is_short(amax) || amax > params.largest_amax) {
    return encode_rare_group<kX, kOut>(params, raw, amax);
  }
  const float scale = Coder::short_scale(amax);
  if (params.rounding == ScaleRounding::exact) {
    return Coder::encode_short(raw, scale, fmaf(-scale, Coder::kMaxFinite, amax));
  }
  return Coder::encode_short(raw, power_of_two_scale(scale, amax, Coder::kMaxFinite), 0.0f);
}

template <DType kXType, DType kOutType> struct QuantizeConfig {
  static constexpr DType kX = kXType;
  static constexpr DType kOut = kOutType;
};

// Not read again soon.
__device__ void store_codes(std::byte* target, uint2 codes) {
  __stcs(reinterpret_cast<uint2*>(target), codes);
}

// Vectors of all rows end to end, fewer than 2^31; a row holds whole groups, so groups are
// neighbouring lanes.
template <typename Config>
__global__ void __launch_bounds__(kThreads)
    quantize_lane_groups(const __grid_constant__ QuantizeParams params, Divisor row_vectors,
                         unsigned num_vectors, unsigned group_vectors) {
  let_next_kernel_start();  // a projection that follows may fetch its weights
  using X = Vec8<Config::kX>;
  using Amax = Largest<Config::kX>;
  const unsigned first = blockIdx.x * kVectors * kThreads + threadIdx.x;
  unsigned row[kVectors];
  unsigned vector[kVectors];
  typename X::Raw raw[kVectors] = {};
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const unsigned index = first + v * kThreads;
    row[v] = row_vectors.quotient(index);
    vector[v] = index - row[v] * row_vectors.value();
    if (index >= num_vectors) continue;
    raw[v] = X::load(params.x + row[v] * params.x_stride_bytes +
                     std::int64_t{vector[v]} * kVec8 * (bits(Config::kX) / 8));
  }
  typename Amax::Value amax[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) amax[v] = Amax::of(raw[v]);
  for (unsigned step = group_vectors / 2; step > 0; step /= 2) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      amax[v] = Amax::merge(amax[v], Amax::exchange(amax[v], step));
    }
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (first + v * kThreads >= num_vectors) continue;
    const GranuleCodes coded =
        encode_group<Config::kX, Config::kOut>(params, raw[v], Amax::magnitude(amax[v]));
    store_codes(params.out + row[v] * params.out_stride_bytes + vector[v] * kVec8, coded.codes);
    if ((vector[v] & (group_vectors - 1)) != 0) continue;
    const unsigned group = vector[v] >> (31 - __clz(group_vectors));
    store_group_scale(params, row[v], group, coded.scale);
  }
}

template <typename Config, int kSlots>
__global__ void __launch_bounds__(kThreads)
    quantize_whole_rows(const __grid_constant__ QuantizeParams params) {
  let_next_kernel_start();  // a projection that follows may fetch its weights
  using X = Vec8<Config::kX>;
  using Amax = Largest<Config::kX>;
  __shared__ float warp_amax[kThreads / kWarp];
  const std::int64_t row = blockIdx.x;
  const std::byte* x = params.x + row * params.x_stride_bytes;
  const auto column = [](int slot) {
    return (slot * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kVec8;
  };
  typename X::Raw raw[kSlots] = {};
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    if (column(s) >= params.columns) continue;
    raw[s] = X::load(x + std::int64_t{column(s)} * (bits(Config::kX) / 8));
  }
  typename Amax::Value largest = Amax::of(raw[0]);
#pragma unroll
  for (int s = 1; s < kSlots; ++s) largest = Amax::merge(largest, Amax::of(raw[s]));
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    largest = Amax::merge(largest, Amax::exchange(largest, step));
  }
  if (threadIdx.x % kWarp == 0) warp_amax[threadIdx.x / kWarp] = Amax::magnitude(largest);
  __syncthreads();
  float amax = warp_amax[0];
  for (unsigned w = 1; w < blockDim.x / kWarp; ++w) amax = fmaxf(amax, warp_amax[w]);

#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    if (column(s) >= params.columns) continue;
    const GranuleCodes coded = encode_group<Config::kX, Config::kOut>(params, raw[s], amax);
    store_codes(params.out + row * params.out_stride_bytes + column(s), coded.codes);
    if (column(s) == 0) store_group_scale(params, row, 0, coded.scale);
  }
}

// A warp per group.
__global__ void __launch_bounds__(kThreads)
    quantize_general(const __grid_constant__ QuantizeParams params, std::int64_t groups) {
  let_next_kernel_start();  // a projection that follows may fetch its weights
  const std::int64_t index = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  if (index >= params.rows * groups) return;
  const int lane = threadIdx.x % kWarp;
  const std::int64_t row = index / groups;
  const std::int64_t group = index - row * groups;
  const std::int64_t first = group * params.group_size;
  const std::int64_t end = min(first + params.group_size, params.columns);
  const std::byte* x = params.x + row * params.x_stride_bytes;

  float amax = 0.0f;
  for (std::int64_t column = first + lane; column < end; column += kWarp) {
    amax = fmaxf(amax, fabsf(static_cast<float>(load_number(x, params.x_dtype, column))));
  }
  const float scale = group_scale(params, warp_max(amax));
  if (lane == 0) store_group_scale(params, row, group, scale);
  for (std::int64_t column = first + lane; column < end; column += kWarp) {
    const double value = load_number(x, params.x_dtype, column);
    const bool is_empty = scale == 0.0f && !isnan(value);
    store_number(params.out + row * params.out_stride_bytes, params.out_dtype, column,
                 is_empty ? 0.0 : value / static_cast<double>(scale));
  }
}

template <typename Config>
void launch_rows(Config, const QuantizeParams& params, cudaStream_t stream) {
  const auto vectors = static_cast<int>(params.columns / kVec8);
  // Four vectors of a thread in flight, more only where the row is long.
  const int threads = std::clamp((vectors / 4 + kWarp - 1) / kWarp * kWarp, kWarp, kThreads);
  const int slots = (vectors + threads - 1) / threads;
  const LaunchShape shape{.grid = dim3(num_blocks(params.rows, 1)),
                          .block = dim3(static_cast<unsigned>(threads))};
  if (slots == 1) return launch(quantize_whole_rows<Config, 1>, shape, stream, params);
  if (slots == 2) return launch(quantize_whole_rows<Config, 2>, shape, stream, params);
  if (slots <= 4) return launch(quantize_whole_rows<Config, 4>, shape, stream, params);
  launch(quantize_whole_rows<Config, 8>, shape, stream, params);
}

template <typename Config>
void launch_groups(Config, const QuantizeParams& params, cudaStream_t stream) {
  const auto row_vectors = static_cast<unsigned>(params.columns / kVec8);
  const std::int64_t vectors = params.rows * row_vectors;
  launch(quantize_lane_groups<Config>,
         {.grid = dim3(num_blocks(vectors, kVectors * kThreads)), .block = dim3(kThreads)}, stream,
         params, Divisor(row_vectors), static_cast<unsigned>(vectors),
         static_cast<unsigned>(params.group_size / kVec8));
}

// start(config) with the configuration of the parameters' types.
template <typename Start> void with_config(const QuantizeParams& params, const Start& start) {
  with_vec8_type(params.x_dtype, [&]<DType kX>() {
    if (params.out_dtype == DType::fp8_e4m3) return start(QuantizeConfig<kX, DType::fp8_e4m3>{});
    start(QuantizeConfig<kX, DType::fp8_e5m2>{});
  });
}

bool has_whole_vectors(const QuantizeParams& params) {
  return params.columns % kVec8 == 0 && are_aligned(16, params.x, params.x_stride_bytes) &&
         are_aligned(8, params.out, params.out_stride_bytes);
}

// Groups of a power of two of vectors, up to a warp; rows of whole groups.
bool takes_lane_groups(const QuantizeParams& params) {
  constexpr std::int64_t kMostVectors = (std::int64_t{1} << 31) - 1024;  // of 32-bit arithmetic
  const std::int64_t vectors = params.group_size / kVec8;
  return has_whole_vectors(params) && params.rows * params.columns / kVec8 < kMostVectors &&
         params.group_size % kVec8 == 0 && params.columns % params.group_size == 0 &&
         vectors <= kWarp && std::has_single_bit(static_cast<std::uint64_t>(vectors));
}

// One group per row, up to eight vectors of a thread.
bool takes_whole_rows(const QuantizeParams& params) {
  return has_whole_vectors(params) && params.group_size >= params.columns &&
         params.columns <= 8 * kThreads * kVec8;
}

// The largest f32 that is not above a positive bound.
float round_down(double bound) {
  const auto nearest = static_cast<float>(bound);
  if (static_cast<double>(nearest) <= bound) return nearest;
  return std::nextafter(nearest, 0.0f);
}

}  // namespace

void quantize_fp8(const QuantizeFp8Args& args, const Context& context) {
  const DeviceScope scope(args.x.device);
  const std::int64_t columns = args.x.shape[1];
  const double bound = args.scale_upper_bound;
  const QuantizeParams params{
      .x = args.x.as<const std::byte>(),
      .x_dtype = args.x.dtype,
      .x_stride_bytes = bytes_for(args.x.dtype, args.x.strides[0]),
      .out = args.out.as<std::byte>(),
      .out_dtype = args.out.dtype,
      .out_stride_bytes = args.out.strides[0],
      .scale = args.scale.as<std::byte>(),
      .scale_dtype = args.scale.dtype,
      .scale_row_stride = args.scale.strides[0],
      .scale_group_stride = args.scale.strides[1],
      .rows = args.x.shape[0],
      .columns = columns,
      .group_size = args.group_size < 0 ? columns : args.group_size,
      .largest_amax = round_down(bound),
      .capped_scale = static_cast<float>(bound / max_finite(args.out.dtype)),
      .rounding = args.scale_rounding,
  };
  if (params.rows == 0) return;
  const auto stream = static_cast<cudaStream_t>(context.stream);
  if (takes_lane_groups(params)) {
    return with_config(params, [&](auto config) { launch_groups(config, params, stream); });
  }
  if (takes_whole_rows(params)) {
    return with_config(params, [&](auto config) { launch_rows(config, params, stream); });
  }
  const std::int64_t groups = (columns + params.group_size - 1) / params.group_size;
  launch(
      quantize_general,
      {.grid = dim3(num_blocks(params.rows * groups * kWarp, kThreads)), .block = dim3(kThreads)},
      stream, params, groups);
}

}  // namespace quire::cuda::any::quantize_fp8
