// SPDX-License-Identifier: Apache-2.0
// A CTA remaps a tile of one token's row; the token's part of the page table stays in the cache.
#include "cuda/any/companions.h"
#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/device_scope.h"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::any::remap_sparse_indices {
namespace {

constexpr int kThreads = 256;
constexpr int kVectors = 2;  // of four indices, per thread
constexpr int kBlockIndices = kThreads * kVectors * 4;
constexpr std::int32_t kAbsent = -1;

struct RemapParams {
  const std::int32_t* indices;  // [tokens, top_k]
  std::int64_t index_strides[2];
  std::int32_t* out;
  std::int64_t out_strides[2];
  std::int64_t tokens;
  std::int64_t top_k;
  const std::uint32_t* row_offsets;
  std::int64_t batch;
  PageTable pages;
};

__device__ std::int32_t physical_row(const RemapParams& params, const PageCursor& pages,
                                     std::int32_t position) {
  if (position < 0) return position;
  const PageSlot slot = pages.find(position, 0x7fffffff);
  return pages.is_mapped(slot)
             ? static_cast<std::int32_t>(slot.page * params.pages.page_size() + slot.row)
             : kAbsent;
}

// -1: the token is nobody's.
__device__ int sequence_of_token(const RemapParams& params, std::int64_t token) {
  if (params.batch == 0 || token >= params.row_offsets[params.batch]) return -1;
  return sequence_of(params.row_offsets, static_cast<int>(params.batch),
                     static_cast<std::uint32_t>(token));
}

__global__ void __launch_bounds__(kThreads)
    remap_vectors(const __grid_constant__ RemapParams params) {
  const std::int64_t token = blockIdx.x;
  const std::int64_t first = std::int64_t{blockIdx.y} * kBlockIndices + threadIdx.x * 4;
  const std::int32_t* indices = params.indices + token * params.index_strides[0];
  int4 positions[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const std::int64_t slot = first + v * kThreads * 4;
    if (slot < params.top_k) positions[v] = *reinterpret_cast<const int4*>(indices + slot);
  }
  const int sequence = sequence_of_token(params, token);
  if (sequence < 0) return;
  const PageCursor pages(params.pages, sequence);
  std::int32_t* out = params.out + token * params.out_strides[0];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const std::int64_t slot = first + v * kThreads * 4;
    if (slot >= params.top_k) continue;
    *reinterpret_cast<int4*>(out + slot) = make_int4(
        physical_row(params, pages, positions[v].x), physical_row(params, pages, positions[v].y),
        physical_row(params, pages, positions[v].z), physical_row(params, pages, positions[v].w));
  }
}

__global__ void __launch_bounds__(kThreads)
    remap_general(const __grid_constant__ RemapParams params) {
  const std::int64_t token = blockIdx.x;
  const int sequence = sequence_of_token(params, token);
  if (sequence < 0) return;
  const PageCursor pages(params.pages, sequence);
  for (std::int64_t slot = threadIdx.x; slot < params.top_k; slot += kThreads) {
    const std::int32_t position =
        params.indices[token * params.index_strides[0] + slot * params.index_strides[1]];
    params.out[token * params.out_strides[0] + slot * params.out_strides[1]] =
        physical_row(params, pages, position);
  }
}

bool has_vectors(const TensorView& tensor) {
  return tensor.strides[1] == 1 && tensor.strides[0] % 4 == 0 && tensor.shape[1] % 4 == 0 &&
         reinterpret_cast<std::uintptr_t>(tensor.data) % sizeof(int4) == 0;
}

}  // namespace

void remap_sparse_indices(const RemapSparseIndicesArgs& args, const Context& context) {
  const DeviceScope scope(args.indices.device);
  const auto stream = static_cast<cudaStream_t>(context.stream);
  const RemapParams params{.indices = args.indices.as<const std::int32_t>(),
                           .index_strides = {args.indices.strides[0], args.indices.strides[1]},
                           .out = args.out.as<std::int32_t>(),
                           .out_strides = {args.out.strides[0], args.out.strides[1]},
                           .tokens = args.indices.shape[0],
                           .top_k = args.indices.shape[1],
                           .row_offsets = args.row_offsets.as<const std::uint32_t>(),
                           .batch = args.cache.batch(),
                           .pages = PageTable::of_rows(args.cache.key(0))};
  const unsigned tokens = num_blocks(params.tokens, 1);
  if (!has_vectors(args.indices) || !has_vectors(args.out)) {
    return launch(remap_general, {.grid = dim3(tokens), .block = dim3(kThreads)}, stream, params);
  }
  const unsigned tiles = num_blocks(params.top_k, kBlockIndices);
  launch(remap_vectors, {.grid = dim3(tokens, tiles), .block = dim3(kThreads)}, stream, params);
}

}  // namespace quire::cuda::any::remap_sparse_indices
