// SPDX-License-Identifier: Apache-2.0
// Rows that are stored as they are. A block moves kBlockVectors neighbouring vectors of x: the loads
// are on their way while a few threads find the pages of the tokens they belong to.
#include "cuda/hopper/store/params.h"
#include "cuda/rows/token_place.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {
namespace {

constexpr int kThreads = 256;
constexpr int kVectors = 4;  // per thread
constexpr int kBlockVectors = kThreads * kVectors;

struct VectorPlace {
  int token;  // from the block's first token
  int head;
  int column;  // vectors
};

__device__ VectorPlace place_of_vector(unsigned index, unsigned per_token, unsigned per_row) {
  const unsigned token = index / per_token;
  const unsigned in_token = index - token * per_token;
  const unsigned head = in_token / per_row;
  return {static_cast<int>(token), static_cast<int>(head),
          static_cast<int>(in_token - head * per_row)};
}

__global__ void __launch_bounds__(kThreads)
    copy_rows(const __grid_constant__ StoreParams params, std::int64_t num_vectors,
              unsigned per_token, unsigned per_row) {
  __shared__ std::byte* rows[kBlockVectors + 1];  // of head 0, one per token that the block touches
  const std::int64_t first = std::int64_t{blockIdx.x} * kBlockVectors;
  const std::int64_t first_token = first / per_token;
  const auto skipped = static_cast<unsigned>(first - first_token * per_token);
  const std::int64_t left = num_vectors - first;
  const unsigned count = left < kBlockVectors ? static_cast<unsigned>(left) : kBlockVectors;

  uint4 values[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const unsigned at = i * kThreads + threadIdx.x;
    if (at >= count) continue;
    const VectorPlace place = place_of_vector(skipped + at, per_token, per_row);
    const std::byte* source = params.x + (first_token + place.token) * params.token_stride_bytes +
                              place.head * params.head_stride_bytes;
    values[i] = __ldcs(reinterpret_cast<const uint4*>(source) + place.column);
  }

  const unsigned num_tokens = (skipped + count - 1) / per_token + 1;
  for (unsigned t = threadIdx.x; t < num_tokens; t += kThreads) {
    rows[t] = first_row(params.view, place_of_token(params.row_offsets, params.view.cache_lengths,
                                                    params.view.batch, first_token + t));
  }
  __syncthreads();

#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const unsigned at = i * kThreads + threadIdx.x;
    if (at >= count) continue;
    const VectorPlace place = place_of_vector(skipped + at, per_token, per_row);
    std::byte* row = rows[place.token];
    if (row == nullptr) continue;
    row += place.head * params.view.head_stride_bytes;
    reinterpret_cast<uint4*>(row)[place.column] = values[i];
  }
}

}  // namespace

void launch_copy(const StoreParams& params, cudaStream_t stream) {
  const auto per_row = static_cast<unsigned>(params.view.row_format.row_bytes / 16);
  const unsigned per_token = per_row * static_cast<unsigned>(params.view.num_heads);
  const std::int64_t num_vectors = params.tokens * per_token;
  launch(copy_rows, {.grid = dim3(num_blocks(num_vectors, kBlockVectors)), .block = dim3(kThreads)},
         stream, params, num_vectors, per_token, per_row);
}

}  // namespace quire::cuda::hopper
