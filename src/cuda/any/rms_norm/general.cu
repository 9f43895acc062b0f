// SPDX-License-Identifier: Apache-2.0
// Any span, in double: a warp each.
#include "cuda/any/rms_norm/params.h"
#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/rows/number.cuh"
#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/warp_reduce.cuh"

namespace quire::cuda::any::rms_norm {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;

// The stored number i of a span whose first row is `row`; columns run on into the next heads.
struct Stored {
  std::byte* base;
  DType dtype;
  int index;
};

__device__ Stored stored(const KvLayerView& view, std::byte* row, std::int64_t i) {
  const int width = view.row_format.width();
  const std::int64_t head = i / width;
  const RowFormat::Column place = view.row_format.locate(static_cast<int>(i - head * width));
  const RowPart& part = view.row_format.parts[place.part];
  return {row + head * view.head_stride_bytes + part.offset_bytes, part.dtype, place.index};
}

__device__ void normalize(const RmsNormParams& params, std::byte* row) {
  const int lane = threadIdx.x % kWarp;
  double sum = 0.0;
  for (std::int64_t i = lane; i < params.columns; i += kWarp) {
    const Stored at = stored(params.view, row, i);
    const double x = load_row_number(at.base, at.dtype, at.index);
    sum += x * x;
  }
  const double factor =
      1.0 / sqrt(warp_sum(sum) / static_cast<double>(params.columns) + params.epsilon);
  for (std::int64_t i = lane; i < params.columns; i += kWarp) {
    const Stored at = stored(params.view, row, i);
    double y = load_row_number(at.base, at.dtype, at.index) * factor;
    if (!params.multiply_before_cast) y = round_number(params.gamma_dtype, y);
    y *= load_number(params.gamma, params.gamma_dtype, i) + params.weight_offset;
    store_row_number(at.base, at.dtype, at.index, y);
  }
}

__global__ void __launch_bounds__(kThreads)
    normalize_general(const __grid_constant__ RmsNormParams params) {
  const std::int64_t num_spans =
      std::int64_t{params.row_offsets[params.view.batch]} * params.token_spans;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads / kWarp;
  for (std::int64_t span = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
       span < num_spans; span += step) {
    const std::int64_t token = span / params.token_spans;
    std::byte* row = first_row(
        params.view,
        place_of_token(params.row_offsets, params.view.cache_lengths, params.view.batch, token));
    if (row == nullptr) continue;
    normalize(params, row + (span - token * params.token_spans) * params.view.head_stride_bytes);
  }
}

}  // namespace

void launch_general(const RmsNormParams& params, unsigned max_blocks, cudaStream_t stream) {
  launch(normalize_general, {.grid = dim3(max_blocks), .block = dim3(kThreads)}, stream, params);
}

}  // namespace quire::cuda::any::rms_norm
