// SPDX-License-Identifier: Apache-2.0
// compress_keys: a CTA for every row that has become whole, then a warp for every token that later rows need. The second
// kernel overwrites what the first one reads.
#include <algorithm>
#include <bit>

#include "cuda/any/companions.h"
#include "cuda/any/compress_keys/params.h"
#include "cuda/any/compress_keys/pooled_row.cuh"
#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/rows/encode_row.cuh"
#include "cuda/common/rows/token_place.cuh"
#include "cuda/common/runtime/alignment.h"
#include "cuda/common/runtime/device_scope.h"
#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/warp_reduce.cuh"

namespace quire::cuda::any::compress_keys {
namespace {

constexpr int kWarp = 32;

__device__ double normal_factor(const CompressParams& params, const double* row) {
  __shared__ double squares[kThreads / kWarp];
  double own = 0.0;
  for (int c = threadIdx.x; c < params.width; c += kThreads) own += row[c] * row[c];
  own = warp_sum(own);
  if (threadIdx.x % kWarp == 0) squares[threadIdx.x / kWarp] = own;
  __syncthreads();
  double sum = 0.0;
  for (const double part : squares) sum += part;
  return 1.0 / sqrt(sum / params.width + params.epsilon);
}

// Normalises and rotates in place; `angles`: the row of freqs.
__device__ void finish_row(const CompressParams& params, std::int64_t angles, double* row) {
  const double factor = normal_factor(params, row);
  const auto normal = [&](int column) {
    return row[column] * factor * load_float(params.gamma.data, params.gamma.dtype, column);
  };
  const int plain = params.width - params.rope;
  for (int c = threadIdx.x; c < plain; c += kThreads) row[c] = normal(c);
  const std::byte* freqs = params.freqs.data + angles * params.freqs.row_bytes;
  for (int pair = threadIdx.x; pair < params.rope / 2; pair += kThreads) {
    const int column = plain + 2 * pair;
    const double cosine = load_float(freqs, params.freqs.dtype, 2 * pair);
    const double sine = load_float(freqs, params.freqs.dtype, 2 * pair + 1);
    const double a = normal(column);
    const double b = normal(column + 1);
    row[column] = a * cosine - b * sine;
    row[column + 1] = a * sine + b * cosine;
  }
  __syncthreads();
}

// What is stored of a finished row.
struct FinishedNumbers {
  const double* row;

  __device__ double operator()(int column) const { return row[column]; }
};

template <NumberLoads kLoads>
__global__ void __launch_bounds__(kThreads, 1)
    compress_rows(const __grid_constant__ CompressParams params) {
  __shared__ float parts[2][kThreads][kVec8];
  extern __shared__ double row[];  // [width]
  const KvLayerView& view = params.rows;
  // Rows in the order of their sequences: of n new tokens at most n / ratio + 1 become whole.
  const RowTile tile = find_row_tile(params.row_offsets, view.batch, 1, params.ratio, blockIdx.x);
  const SequenceTokens of(params, tile.sequence);
  const std::int64_t entry = of.cached / params.ratio + tile.first_row / params.ratio;
  if (entry >= of.end / params.ratio || of.slot < 0) return;
  const TokenPlace place{.sequence = of.sequence, .position = entry};
  std::byte* target = first_row(view, place);
  if (target == nullptr) return;
  PooledRow<kLoads>(params, of, entry).write(parts, row);
  finish_row(params, min(entry * params.ratio, params.max_pos - 1), row);
  const FinishedNumbers numbers{row};
  const RowDestination to{.view = view,
                          .scales_are_static = params.scales_are_static,
                          .row = target,
                          .plane = first_scale(view, place)};
  ScalarRowEncoder(to, numbers,
                   {.warp = static_cast<int>(threadIdx.x) / kWarp, .num_warps = kThreads / kWarp})
      .encode();
}

// A warp for each part of a token.
template <NumberLoads kLoads>
__global__ void __launch_bounds__(kThreads)
    keep_tokens(const __grid_constant__ CompressParams params) {
  const std::int64_t index = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  const std::int64_t token = index / 2;
  const int part = static_cast<int>(index % 2);
  const KvLayerView& view = params.rows;
  if (token >= params.tokens || view.batch == 0 || token >= params.row_offsets[view.batch]) return;
  const SequenceTokens of(params, sequence_of(params.row_offsets, static_cast<int>(view.batch),
                                              static_cast<std::uint32_t>(token)));
  const std::int64_t position = of.cached + token - of.first_token;
  if (of.slot < 0 || position < of.end - params.state.rows) return;
  const DenseRows& rows = params.parts[part];
  const std::byte* from = rows.data + token * rows.row_bytes;
  std::byte* to = state_row(params.state, of, position, part);
  const int columns = params.series * params.width;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll 2
  for (int c = lane * kVec8; c < columns; c += kWarp * kVec8) {
    float values[kVec8];
    load_eight<kLoads>(from, rows.dtype, c, columns, values);
    if constexpr (kLoads == NumberLoads::vec8) {
      store_run(to + std::int64_t{c} * (bits(params.state.dtype) / 8), params.state.dtype, values);
    } else {
      for (int i = 0; i < kVec8 && c + i < columns; ++i) {
        store_one(to, params.state.dtype, c + i, values[i]);
      }
    }
  }
}

DenseRows dense_rows(const TensorView& matrix) {
  return {.data = matrix.as<const std::byte>(),
          .dtype = matrix.dtype,
          .row_bytes = bytes_for(matrix.dtype, matrix.strides[0])};
}

bool takes_vec8(const CompressParams& params) {
  const auto fits = [](const DenseRows& rows) {
    return are_aligned(16, rows.data, rows.row_bytes);
  };
  const StateRows& state = params.state;
  return params.width % kVec8 == 0 && fits(params.parts[0]) && fits(params.parts[1]) &&
         fits(params.bias) &&
         are_aligned(16, state.data, state.slot_bytes, state.row_bytes, state.part_bytes);
}

CompressParams params_of(const CompressKeysArgs& args) {
  const KvLayerView rows = args.cache.key(args.layer);
  const TensorView& state = args.state;
  const auto bytes = [&](std::size_t dim) { return bytes_for(state.dtype, state.strides[dim]); };
  const std::int32_t width = rows.width();
  CompressParams params{
      .width = width,
      .series = static_cast<int>(args.kv.shape[1] / width),
      .ratio = static_cast<int>(args.bias.shape[0]),
      .rope = static_cast<int>(args.freqs_cis.shape[1]),
      .tokens = args.kv.shape[0],
      .parts = {dense_rows(args.kv), dense_rows(args.gate)},
      .bias = dense_rows(args.bias),
      .gamma = {.data = args.gamma.as<const std::byte>(),
                .dtype = args.gamma.dtype,
                .row_bytes = 0},
      .freqs = dense_rows(args.freqs_cis),
      .max_pos = args.freqs_cis.shape[0],
      .epsilon = args.epsilon,
      .state = {.data = state.as<std::byte>(),
                .dtype = state.dtype,
                .slots = state.shape[0],
                .rows = state.shape[1],
                .slot_bytes = bytes(0),
                .row_bytes = bytes(1),
                .part_bytes = bytes(2)},
      .state_slots = args.state_slots ? args.state_slots->as<const std::uint32_t>() : nullptr,
      .row_offsets = args.row_offsets.as<const std::uint32_t>(),
      .rows = rows,
      .scales_are_static = rows.scales.defined() && rows.scales.is_static(),
      .vectors = 1};
  const auto vectors = static_cast<unsigned>((width + kVec8 - 1) / kVec8);
  params.vectors = std::min(kMostVectors, static_cast<int>(std::bit_ceil(vectors)));
  return params;
}

template <NumberLoads kLoads> void launch_both(const CompressParams& params, cudaStream_t stream) {
  launch(
      compress_rows<kLoads>,
      {.grid = dim3(num_blocks(num_row_tiles(params.tokens, params.rows.batch, params.ratio), 1)),
       .block = dim3(kThreads),
       .shared_bytes = static_cast<std::size_t>(params.width) * sizeof(double)},
      stream, params);
  launch(keep_tokens<kLoads>,
         {.grid = dim3(num_blocks(2 * params.tokens * kWarp, kThreads)), .block = dim3(kThreads)},
         stream, params);
}

}  // namespace

void compress_keys(const CompressKeysArgs& args, const Context& context) {
  const DeviceScope scope(args.kv.device);
  const CompressParams params = params_of(args);
  if (params.tokens == 0 || params.rows.batch == 0) return;
  const auto stream = static_cast<cudaStream_t>(context.stream);
  if (takes_vec8(params)) return launch_both<NumberLoads::vec8>(params, stream);
  launch_both<NumberLoads::single>(params, stream);
}

}  // namespace quire::cuda::any::compress_keys
