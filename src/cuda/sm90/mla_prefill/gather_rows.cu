// SPDX-License-Identifier: Apache-2.0
// A warp per buffer row, eight columns a lane. Rows without a key are zeros: nobody sees them.
#include <algorithm>

#include "cuda/any/mla_prefill/chunk_rows.cuh"
#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/mla_prefill/latent_group.cuh"
#include "cuda/sm90/mla_prefill/params.h"
#include "cuda/sm90/mla_prefill/write_spans.cuh"

namespace quire::cuda::sm90::mla_prefill {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;

__device__ void round_vec8(DType dtype, float (&values)[kVec8]) {
#pragma unroll
  for (float& value : values) {
    value =
        dtype == DType::bf16 ? Eight<DType::bf16>::round(value) : Eight<DType::f16>::round(value);
  }
}

// A code times its scale has more bits than f32. Cut off, with a last bit that remembers it, the
// rounding to q's dtype is the only one (rows/quotient.cuh); a second one moved a latent in some ten
// thousand, and e4m3 codes of theirs by a whole step.
__device__ float odd_product(float code, float scale) {
  const float lower = __fmul_rz(code, scale);
  const bool is_exact = fmaf(code, scale, -lower) == 0.0F;
  return is_exact ? lower : __int_as_float(__float_as_int(lower) | 1);
}

// Eight latents, to be rounded to q's dtype; zeros behind the last and without a page.
__device__ void load_latents(const GatherRowsParams& params, const RowPlace& place, int column,
                             float (&values)[kVec8]) {
  const KvLayerView& view = params.cache.view;
  const RowPart& part = view.row_format.parts[view.row_format.locate(0).part];
  if (part.scale_source == ScaleSource::none || !place.exists()) {
    return load_columns(params.cache, place, column, params.latent, values);
  }
#pragma unroll
  for (int i = 0; i < kVec8; ++i) {
    values[i] = 0.0F;
    if (column + i >= params.latent) continue;
    const RowFormat::Column at = view.row_format.locate(column + i);
    const RowPart& own = view.row_format.parts[at.part];
    values[i] = odd_product(load_row_once(place.row + own.offset_bytes, own.dtype, at.index),
                            scale_of(view, own, place, column + i, at.index));
  }
}

__device__ void gather_latents(const GatherRowsParams& params, std::int64_t row,
                               const RowPlace& place, int lane) {
  for (int first = 0; first < params.latent; first += kWarp * kVec8) {
    const int column = first + kVec8 * lane;
    float values[kVec8];
    load_latents(params, place, column, values);
    const std::int64_t at = row * params.latent + column;
    if (params.scales == nullptr) {
      if (column < params.latent) store_vec8(params.latents + 2 * at, params.dtype, values);
      continue;
    }
    round_vec8(params.dtype, values);
    const float scale = divide_group(values);
    if (column >= params.latent) continue;
    store_vec8(params.latents + at, DType::fp8_e4m3, values);
    if (lane % kLatentGroupLanes == 0) {
      params.scales[row * params.scale_stride + column / kFp8Group] = scale;
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    gather_rows(const __grid_constant__ GatherRowsParams params) {
  cudaTriggerProgrammaticLaunchCompletion();
  const std::int64_t row = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const bool is_row =
      row < min(params.rows, any::mla_prefill::chunk_length(params.chunks, params.chunk));
  // Where it stands follows from the call's arguments: found while the kernel before still runs.
  RowPlace place{};
  if (is_row) {
    place = any::mla_prefill::place_of_row(params.cache.view, params.row_offsets, params.chunks,
                                           params.chunk, row);
  }
  write_spans(params.spans, std::int64_t{blockIdx.x} * kThreads + threadIdx.x,
              std::int64_t{gridDim.x} * kThreads);
  cudaGridDependencySynchronize();
  if (!is_row) return;
  gather_latents(params, row, place, lane);
  const int width = params.latent + params.rope;
  for (int column = kVec8 * lane; column < params.rope; column += kWarp * kVec8) {
    float values[kVec8];
    load_columns(params.cache, place, params.latent + column, width, values);
    const std::int64_t at = row * params.rope + column;
    store_vec8(params.rope_rows + (params.rope_dtype == DType::fp8_e4m3 ? at : 2 * at),
               params.rope_dtype, values);
  }
}

}  // namespace

void launch_gather_rows(const GatherRowsParams& params, cudaStream_t stream) {
  launch(gather_rows,
         {.grid = dim3(num_blocks(std::max<std::int64_t>(params.rows, 1) * kWarp, kThreads)),
          .block = dim3(kThreads),
          .overlaps_previous = params.follows_kernel},
         stream, params);
}

}  // namespace quire::cuda::sm90::mla_prefill
