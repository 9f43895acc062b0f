// SPDX-License-Identifier: Apache-2.0
// Rows and scales that are stored as they are. A block moves kBlockVectors neighbouring vectors of x: the loads
// are on their way while a few threads find the pages of the tokens they belong to.
#include "cuda/any/store/places.cuh"
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

// A lane per token; warps without one do nothing.
template <CopyTarget kTarget, typename Rows>
__device__ void find_targets(const Rows& rows, const StoreParams& side, std::int64_t first_token,
                             unsigned tokens, std::byte** targets) {
  if constexpr (std::is_same_v<Rows, StoreSides>) {
    if (rows.slots.defined()) {
      for (unsigned t = threadIdx.x; t < tokens; t += kThreads) {
        targets[t] = row_at_slot(side.view, rows.slots.at(first_token + t));
      }
      return;
    }
  }
  for (unsigned t = threadIdx.x & ~31u; t < tokens; t += kThreads) {
    const PlaceFinder<StoreParams, TokenFinder> finder(side);
    const unsigned own = t + threadIdx.x % 32;
    const TokenPlace place = finder.find(first_token + own);
    if (own >= tokens) continue;
    targets[own] = kTarget == CopyTarget::rows ? finder.row(place) : finder.scale(place);
  }
}

// Places are computed again after the lookups, which leave no registers for them: without this 8 bytes spill.
__device__ unsigned opaque(unsigned value) {
  asm volatile("" : "+r"(value));
  return value;
}

template <CopyTarget kTarget, typename Rows>
__global__ void __launch_bounds__(kThreads, 5)
    copy_vectors(const __grid_constant__ Rows rows, const __grid_constant__ CopyShape shape) {
  __shared__ std::byte* targets[kBlockVectors + 1];  // one per token that the block touches
  const StoreParams& params = side_of(rows);
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

  find_targets<kTarget>(rows, params, first_token,
                        shape.per_token.quotient(skipped + count - 1) + 1, targets);
  __syncthreads();

#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (i * kThreads + threadIdx.x >= count) continue;
    if constexpr (std::is_same_v<Rows, StoreSides>) {
      places[i] = place_of_vector(shape, opaque(skipped) + i * kThreads + threadIdx.x);
    }
    std::byte* target = targets[places[i].token];
    if (target == nullptr) continue;
    __builtin_assume(__isGlobal(target));  // which an address from shared memory does not say
    if constexpr (std::is_same_v<Rows, StoreSides>) {
      target += places[i].row * params.view.head_stride_bytes;  // of its own side
    } else {
      target += places[i].row * shape.target_row_bytes;
    }
    reinterpret_cast<uint4*>(target)[places[i].column] = values[i];
  }
}

// A token's vectors: rows, and how many vectors each of them has.
template <CopyTarget kTarget, typename Rows>
void launch_vectors(const Rows& rows, int token_rows, int row_vectors,
                    std::int64_t target_row_bytes, cudaStream_t stream) {
  const CopyShape shape{.per_token = Divisor(static_cast<unsigned>(token_rows * row_vectors)),
                        .per_row = Divisor(static_cast<unsigned>(row_vectors)),
                        .num_vectors = first_side(rows).tokens * token_rows * row_vectors,
                        .target_row_bytes = target_row_bytes};
  launch(copy_vectors<kTarget, Rows>,
         {.grid = dim3(num_blocks(shape.num_vectors, kBlockVectors), 1, num_sides(rows)),
          .block = dim3(kThreads)},
         stream, rows, shape);
}

template <typename Rows> void launch_rows(const Rows& rows, cudaStream_t stream) {
  const KvLayerView& view = first_side(rows).view;
  launch_vectors<CopyTarget::rows>(rows, view.num_heads, view.row_format.row_bytes / kVectorBytes,
                                   view.head_stride_bytes, stream);
}

}  // namespace

void launch_copy(const StoreParams& rows, cudaStream_t stream) {
  launch_rows(rows, stream);
}

void launch_copy(const StoreSides& rows, cudaStream_t stream) {
  launch_rows(rows, stream);
}

void launch_copy_scales(const StoreParams& params, cudaStream_t stream) {
  const int bytes =
      params.view.num_heads * params.view.row_format.plane_slots() * (bits(params.x_dtype) / 8);
  launch_vectors<CopyTarget::scales>(params, 1, bytes / kVectorBytes, 0, stream);
}

}  // namespace quire::cuda::any::store
