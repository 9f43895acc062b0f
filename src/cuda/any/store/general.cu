// SPDX-License-Identifier: Apache-2.0
// Any row format, any alignment, in double: a warp per row. And ready-made scales, a thread each.
#include "cuda/any/store/places.cuh"
#include "cuda/common/rows/encode_row.cuh"
#include "cuda/common/rows/scale_number.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::any::store {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;

// Numbers, or codes in the cache's own dtype.
struct GeneralNumbers {
  const std::byte* x;
  DType dtype;

  __device__ double operator()(int column) const { return load_number(x, dtype, column); }
};

// By a warp.
__device__ void store_row(const GeneralNumbers& numbers, const RowDestination& target) {
  const RowFormat& format = target.view.row_format;
  const RowPart& part = format.parts[0];
  if (!format.is_uniform() || numbers.dtype != part.dtype) {
    return ScalarRowEncoder(target, numbers, {}).encode();
  }
  for (int i = threadIdx.x % kWarp; i < part.width; i += kWarp) {
    store_row_number(target.row + part.offset_bytes, part.dtype, i, numbers(i));
  }
}

template <typename Rows>
__global__ void __launch_bounds__(kThreads, 2) store_general(const __grid_constant__ Rows rows) {
  const StoreParams& params = side_of(rows);
  const int heads = params.view.num_heads;
  const std::int64_t index =
      (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;  // of the row
  if (index >= params.tokens * heads) return;
  const std::int64_t token = index / heads;
  const std::int64_t head = index - token * heads;
  const PlaceFinder<Rows, LoneFinder> finder(rows);
  const TokenPlace place = finder.find(token);
  std::byte* row = finder.row(place);
  if (row == nullptr) return;
  std::byte* plane = finder.scale(place);
  const ScaleLayerView& scales = params.view.scales;
  if (plane != nullptr) plane += head * scales.head_stride * (bits(scales.dtype) / 8);
  const std::byte* x =
      params.x + token * params.token_stride_bytes + head * params.head_stride_bytes;
  store_row({.x = x, .dtype = params.x_dtype}, {.view = params.view,
                                                .scales_are_static = params.scales_are_static,
                                                .row = row + head * params.view.head_stride_bytes,
                                                .plane = plane});
}

// A slot that no column of the row has is left alone.
__device__ bool is_used(const RowFormat& format, int slot) {
  int begin = 0;
  for (int p = 0; p < format.num_parts; ++p) {
    const RowPart& part = format.parts[p];
    const int end = begin + part.width;
    const bool in_plane = part.scale_source == ScaleSource::plane && part.width > 0;
    if (in_plane && slot >= begin / part.granularity && slot <= (end - 1) / part.granularity) {
      return true;
    }
    begin = end;
  }
  return false;
}

__global__ void __launch_bounds__(kThreads, 2)
    store_scales_kernel(const __grid_constant__ StoreParams params, int slots,
                        int tokens_per_block) {
  extern __shared__ std::byte* bases[];  // [tokens_per_block], slot 0 of head 0
  const std::int64_t first_token = std::int64_t{blockIdx.x} * tokens_per_block;
  const std::int64_t left = params.tokens - first_token;
  const int num_tokens = left < tokens_per_block ? static_cast<int>(left) : tokens_per_block;
  for (int t = threadIdx.x; t < num_tokens; t += kThreads) {
    bases[t] =
        first_scale(params.view, place_of_token(params.row_offsets, params.view.cache_lengths,
                                                params.view.batch, first_token + t));
  }
  __syncthreads();
  const ScaleLayerView& scales = params.view.scales;
  const int per_token = params.view.num_heads * slots;
  const int size = bits(scales.dtype) / 8;
#pragma unroll 4
  for (int i = threadIdx.x; i < num_tokens * per_token; i += kThreads) {
    const int token = i / per_token;
    const int head = (i - token * per_token) / slots;
    const int slot = i - token * per_token - head * slots;
    if (bases[token] == nullptr || !is_used(params.view.row_format, slot)) continue;
    const std::byte* source = params.x + (first_token + token) * params.token_stride_bytes +
                              head * params.head_stride_bytes;
    std::byte* target =
        bases[token] + (head * scales.head_stride + slot * scales.slot_stride) * size;
    if (scales.dtype == DType::f32 && params.x_dtype == DType::f32) {
      *reinterpret_cast<float*>(target) =
          reinterpret_cast<const float*>(source)[slot * params.last_stride];
    } else {
      store_scale(target, scales.dtype, 0,
                  load_number(source, params.x_dtype, slot * params.last_stride));
    }
  }
}

template <typename Rows> void launch_rows(const Rows& rows, cudaStream_t stream) {
  const std::int64_t threads = first_side(rows).tokens * first_side(rows).view.num_heads * kWarp;
  launch(store_general<Rows>,
         {.grid = dim3(num_blocks(threads, kThreads), 1, num_sides(rows)), .block = dim3(kThreads)},
         stream, rows);
}

}  // namespace

void launch_general(const StoreParams& rows, cudaStream_t stream) {
  launch_rows(rows, stream);
}

void launch_general(const StoreSides& rows, cudaStream_t stream) {
  launch_rows(rows, stream);
}

void launch_scales(const StoreParams& params, cudaStream_t stream) {
  const int slots = params.view.row_format.plane_slots();
  const int per_token = params.view.num_heads * slots;
  if (per_token == 0) return;
  constexpr int kBlockScales = 4 * kThreads;
  const int tokens = per_token >= kBlockScales ? 1 : kBlockScales / per_token;
  launch(store_scales_kernel,
         {.grid = dim3(num_blocks(params.tokens, tokens)),
          .block = dim3(kThreads),
          .shared_bytes = static_cast<std::size_t>(tokens) * sizeof(std::byte*)},
         stream, params, slots, tokens);
}

}  // namespace quire::cuda::any::store
