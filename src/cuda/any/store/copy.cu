// SPDX-License-Identifier: Apache-2.0
// Rows and scales that are stored as they are. A block moves kBlockVectors neighbouring vectors of x: the loads
// are on their way while a few threads find the pages of the tokens they belong to.
#include "cuda/any/store/params.h"
#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/rows/divisor.h"
#include "cuda/common/rows/load_once.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::any::store {
namespace {

constexpr int kThreads = 256;
constexpr int kVectors = 4;  // per thread
constexpr int kBlockVectors = kThreads * kVectors;
constexpr int kVectorBytes = 16;

// What a run of bytes is copied into: the token's rows, or its scales.
enum class CopyTarget : std::uint8_t { rows, scales };

// Vectors of 16 bytes: a row (one head of a token, or all of them where they have no gaps).
struct CopyShape {
  Divisor per_token;
  Divisor per_row;
  std::int64_t num_vectors;
  std::int64_t target_row_bytes;  // from row to row of a token
};

struct VectorPlace {
  unsigned token;  // from the block's first token
  unsigned row;
  unsigned column;
};

__device__ VectorPlace place_of_vector(const CopyShape& shape, unsigned index) {
  const unsigned token = shape.per_token.quotient(index);
  const unsigned in_token = index - token * shape.per_token.value();
  const unsigned row = shape.per_row.quotient(in_token);
  return {token, row, in_token - row * shape.per_row.value()};
}

template <CopyTarget kTarget>
__device__ std::byte* target_of(const KvLayerView& view, const TokenPlace& place) {
  return kTarget == CopyTarget::rows ? first_row(view, place) : first_scale(view, place);
}

// A lane per token; warps without one do nothing.
template <CopyTarget kTarget>
__device__ void find_targets(const StoreParams& params, std::int64_t first_token, unsigned tokens,
                             std::byte** targets) {
  for (unsigned t = threadIdx.x & ~31u; t < tokens; t += kThreads) {
    const TokenFinder finder(params.row_offsets, params.view.cache_lengths, params.view.batch);
    const unsigned own = t + threadIdx.x % 32;
    const TokenPlace place = finder.find(first_token + own);
    if (own < tokens) targets[own] = target_of<kTarget>(params.view, place);
  }
}

template <CopyTarget kTarget>
__global__ void __launch_bounds__(kThreads, 5)
    copy_vectors(const __grid_constant__ StoreParams params,
                 const __grid_constant__ CopyShape shape) {
  __shared__ std::byte* targets[kBlockVectors + 1];  // one per token that the block touches
  const unsigned per_token = shape.per_token.value();
  const std::int64_t first = std::int64_t{blockIdx.x} * kBlockVectors;
  const std::int64_t first_token = shape.per_token.quotient_of(first);
  const auto skipped = static_cast<unsigned>(first - first_token * per_token);
  const std::int64_t left = shape.num_vectors - first;
  const unsigned count = left < kBlockVectors ? static_cast<unsigned>(left) : kBlockVectors;

  VectorPlace places[kVectors];
  uint4 values[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const unsigned at = i * kThreads + threadIdx.x;
    places[i] = place_of_vector(shape, skipped + at);
    if (at >= count) continue;
    const std::byte* source = params.x +
                              (first_token + places[i].token) * params.token_stride_bytes +
                              places[i].row * params.head_stride_bytes;
    values[i] = load_once(source + places[i].column * sizeof(uint4));
  }

  find_targets<kTarget>(params, first_token, shape.per_token.quotient(skipped + count - 1) + 1,
                        targets);
  __syncthreads();

#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (i * kThreads + threadIdx.x >= count) continue;
    std::byte* target = targets[places[i].token];
    if (target == nullptr) continue;
    __builtin_assume(__isGlobal(target));  // which an address from shared memory does not say
    target += places[i].row * shape.target_row_bytes;
    reinterpret_cast<uint4*>(target)[places[i].column] = values[i];
  }
}

template <CopyTarget kTarget>
void launch_vectors(const StoreParams& params, int rows, int row_vectors,
                    std::int64_t target_row_bytes, cudaStream_t stream) {
  const CopyShape shape{.per_token = Divisor(static_cast<unsigned>(rows * row_vectors)),
                        .per_row = Divisor(static_cast<unsigned>(row_vectors)),
                        .num_vectors = params.tokens * rows * row_vectors,
                        .target_row_bytes = target_row_bytes};
  launch(copy_vectors<kTarget>,
         {.grid = dim3(num_blocks(shape.num_vectors, kBlockVectors)), .block = dim3(kThreads)},
         stream, params, shape);
}

}  // namespace

void launch_copy(const StoreParams& params, cudaStream_t stream) {
  const KvLayerView& view = params.view;
  launch_vectors<CopyTarget::rows>(params, view.num_heads, view.row_format.row_bytes / kVectorBytes,
                                   view.head_stride_bytes, stream);
}

void launch_copy_scales(const StoreParams& params, cudaStream_t stream) {
  const int bytes =
      params.view.num_heads * params.view.row_format.plane_slots() * (bits(params.x_dtype) / 8);
  launch_vectors<CopyTarget::scales>(params, 1, bytes / kVectorBytes, 0, stream);
}

}  // namespace quire::cuda::any::store
