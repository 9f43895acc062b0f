// SPDX-License-Identifier: Apache-2.0
// A block remaps a piece of one token's row; the token's part of the page table stays in the cache.
#include "cuda/any/remap_sparse_indices/launch.h"
#include "cuda/common/rows/token_place.cuh"
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
  const std::uint32_t* page_table;  // [batch, max_pages]
  std::int64_t table_stride;
  std::uint32_t max_pages;
  std::uint32_t num_pages;
  std::uint32_t page_size;
};

__device__ std::int32_t physical_row(const RemapParams& params, const std::uint32_t* table,
                                     std::int32_t position) {
  if (position < 0) return position;
  const std::uint32_t column = static_cast<std::uint32_t>(position) / params.page_size;
  if (column >= params.max_pages) return kAbsent;
  const std::uint32_t page = __ldg(table + column);
  if (page >= params.num_pages) return kAbsent;
  const std::uint32_t in_page = static_cast<std::uint32_t>(position) - column * params.page_size;
  return static_cast<std::int32_t>(page * params.page_size + in_page);
}

// The token's row of the page table; null where the token is nobody's.
__device__ const std::uint32_t* table_of(const RemapParams& params, std::int64_t token) {
  if (params.batch == 0 || token >= params.row_offsets[params.batch]) return nullptr;
  const int sequence = sequence_of(params.row_offsets, static_cast<int>(params.batch),
                                   static_cast<std::uint32_t>(token));
  return params.page_table + sequence * params.table_stride;
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
  const std::uint32_t* table = table_of(params, token);
  if (table == nullptr) return;
  std::int32_t* out = params.out + token * params.out_strides[0];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const std::int64_t slot = first + v * kThreads * 4;
    if (slot >= params.top_k) continue;
    *reinterpret_cast<int4*>(out + slot) = make_int4(
        physical_row(params, table, positions[v].x), physical_row(params, table, positions[v].y),
        physical_row(params, table, positions[v].z), physical_row(params, table, positions[v].w));
  }
}

__global__ void __launch_bounds__(kThreads)
    remap_general(const __grid_constant__ RemapParams params) {
  const std::int64_t token = blockIdx.x;
  const std::uint32_t* table = table_of(params, token);
  if (table == nullptr) return;
  for (std::int64_t slot = threadIdx.x; slot < params.top_k; slot += kThreads) {
    const std::int32_t position =
        params.indices[token * params.index_strides[0] + slot * params.index_strides[1]];
    params.out[token * params.out_strides[0] + slot * params.out_strides[1]] =
        physical_row(params, table, position);
  }
}

bool has_vectors(const TensorView& tensor) {
  return tensor.strides[1] == 1 && tensor.strides[0] % 4 == 0 && tensor.shape[1] % 4 == 0 &&
         reinterpret_cast<std::uintptr_t>(tensor.data) % sizeof(int4) == 0;
}

}  // namespace

std::string refuse(const RemapSparseIndicesProblem& problem) {
  return refuse_hopper(problem.device);
}

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
                           .page_table = args.cache.page_table.as<const std::uint32_t>(),
                           .table_stride = args.cache.page_table.strides[0],
                           .max_pages = static_cast<std::uint32_t>(args.cache.max_pages()),
                           .num_pages = static_cast<std::uint32_t>(args.cache.num_pages()),
                           .page_size = static_cast<std::uint32_t>(args.cache.page_size())};
  const unsigned tokens = num_blocks(params.tokens, 1);
  if (!has_vectors(args.indices) || !has_vectors(args.out)) {
    return launch(remap_general, {.grid = dim3(tokens), .block = dim3(kThreads)}, stream, params);
  }
  const unsigned pieces = num_blocks(params.top_k, kBlockIndices);
  launch(remap_vectors, {.grid = dim3(tokens, pieces), .block = dim3(kThreads)}, stream, params);
}

}  // namespace quire::cuda::any::remap_sparse_indices
