// SPDX-License-Identifier: Apache-2.0
// A block per new token. Statistics in double: the normalised number is rounded twice on its way to
// the cache, and an error before the first rounding can become a whole step after it.
#include "cuda/common/mla/finish_row.cuh"
#include "cuda/common/mla/finish_rows.h"
#include "cuda/common/paging/row_reader.cuh"
#include "cuda/common/rows/token_place.cuh"
#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/warp_reduce.cuh"

namespace quire::cuda {
namespace {

constexpr int kThreads = 128;

struct RawRow {
  const FinishRowsParams& params;
  std::int64_t token;
  RowPlace place;

  __device__ double operator()(int column) const {
    if (params.kv != nullptr) {
      return load_one(params.kv + token * params.kv_token_bytes, params.kv_dtype, column);
    }
    return place.exists() ? load_column(params.cache.view, place, column) : 0.0f;
  }
};

__device__ double block_sum(double value) {
  __shared__ double parts[kThreads / 32];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  double sum = 0.0;
  for (const double part : parts) sum += part;
  return sum;
}

__global__ void __launch_bounds__(kThreads)
    finish_new_rows(const __grid_constant__ FinishRowsParams params) {
  const KvLayerView& view = params.cache.view;
  const std::int64_t token = blockIdx.x;
  const TokenPlace at = place_of_token(params.row_offsets, view.cache_lengths, view.batch, token);
  if (!at.exists()) return;
  const int width = view.row_format.width();
  const RawRow raw{params, token, place_row(view, at.sequence, at.position, 0)};
  double squares = 0.0;
  for (int column = threadIdx.x; column < params.latent; column += kThreads) {
    const double number = raw(column);  // once: each is a call, around which registers are saved
    squares += number * number;
  }
  const double factor = 1.0 / sqrt(block_sum(squares) / params.latent + params.epsilon);
  float* row = params.rows + token * width;
  for (int column = threadIdx.x; column < params.latent; column += kThreads) {
    const double normalised = round_number(params.gamma_dtype, raw(column) * factor);
    const double weight = load_number(params.gamma, params.gamma_dtype, column);
    row[column] = static_cast<float>(round_number(params.gamma_dtype, normalised * weight));
  }
  for (int pair = threadIdx.x; 2 * pair < width - params.latent; pair += kThreads) {
    const int column = params.latent + 2 * pair;
    const RotatedPair rotated =
        rotate_pair(params.angles, at.position, pair, raw(column), raw(column + 1));
    row[column] = static_cast<float>(rotated.a);
    row[column + 1] = static_cast<float>(rotated.b);
  }
}

}  // namespace

void launch_finish_rows(const FinishRowsParams& params, cudaStream_t stream) {
  launch(finish_new_rows, {.grid = dim3(num_blocks(params.tokens, 1)), .block = dim3(kThreads)},
         stream, params);
}

}  // namespace quire::cuda
