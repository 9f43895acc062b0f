// SPDX-License-Identifier: Apache-2.0
// A block: 64 rows × 64 outputs of one head, 128 columns at a time; a warp has 16 of the rows. Products
// of e4m3 are exact in bf16: a group's sums are scaled in fp32.
#include "cuda/hopper/latent/head_matmul.h"

#include "cuda/hopper/latent/head_matmul_tiles.cuh"
#include "cuda/hopper/latent/rotate.cuh"
#include "cuda/rows/token_place.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {
namespace {

// Two threads a token. A function of its own: its doubles would stand between the products' code.
__device__ __noinline__ void rotate_tile(const RotateQueriesParams& rope, std::int64_t first_row,
                                         int head) {
  constexpr int kShare = kMatmulThreads / kMatmulTile;
  const std::int64_t token = first_row + threadIdx.x / kShare;
  if (token >= rope.tokens) return;
  const TokenPlace place = place_of_token(rope.row_offsets, rope.cache_lengths, rope.batch, token);
  if (!place.exists()) return;
  const std::byte* q = rope.q.data + token * rope.q.token_bytes + head * rope.q.head_bytes;
  std::byte* y = rope.y + token * rope.y_token_bytes + head * rope.y_head_bytes;
#pragma unroll 1
  for (int pair = static_cast<int>(threadIdx.x) % kShare; pair < rope.rope / 2; pair += kShare) {
    const int from = rope.q.width - rope.rope + 2 * pair;
    const int to = rope.y_width - rope.rope + 2 * pair;
    const RotatedPair turned =
        rotate_pair(rope.angles, place.position, pair, load_number(q, rope.q.dtype, from),
                    load_number(q, rope.q.dtype, from + 1));
    store_number(y, rope.y_dtype, to, turned.a);
    store_number(y, rope.y_dtype, to + 1, turned.b);
  }
}

__device__ void store_sums(const HeadMatmulParams& params, int head, std::int64_t first_row,
                           std::int64_t num_rows, int first_output, const MatmulSums& sums) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const auto warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::int64_t row = first_row + 16 * warp + lane / 4 + 8 * i;
    if (row >= num_rows) continue;
    std::byte* y = params.y + row * params.y_row_bytes + head * params.y_head_bytes;
#pragma unroll
    for (int j = 0; j < kMatmulTile / 8; ++j) {
      const int output = first_output + 8 * j + lane % 4 * 2;
      if (output >= params.outputs) continue;
      *reinterpret_cast<__nv_bfloat162*>(y + 2 * output) =
          __floats2bfloat162_rn(sums[j][2 * i], sums[j][2 * i + 1]);
    }
  }
}

__global__ void __launch_bounds__(kMatmulThreads)
    multiply_head_tiles(const __grid_constant__ HeadMatmulParams params) {
  extern __shared__ __align__(16) std::byte memory[];
  auto& shared = *reinterpret_cast<MatmulShared*>(memory);
  const int head = static_cast<int>(blockIdx.x);
  const int first_output = static_cast<int>(blockIdx.y) * kMatmulTile;
  const std::int64_t first_row = std::int64_t{blockIdx.z} * kMatmulTile;
  const std::int64_t num_rows = min(params.rows, std::int64_t{*params.live_rows});
  if (first_row >= num_rows) return;
  if (first_output >= params.outputs) return rotate_tile(params.rope, first_row, head);
  const MatmulPlace place{
      .head = head, .first_row = first_row, .num_rows = num_rows, .first_output = first_output};
  const WeightPath path = weight_path(params.weights);
  FetchedWeights fetched;
  const auto fetch = [&](int column, MatmulChunk& chunk) {
    fetch_x(params, place, column, chunk);
    fetch_w(params, place, column, path, chunk, fetched);
    cute::cp_async_fence();
  };
  MatmulSums sums = {};
  fetch(0, shared.chunks[0]);
  put_w(params, place, 0, path, shared.chunks[0], fetched);
  for (int column = 0, chunk = 0; column < params.columns; column += kMatmulChunk, chunk ^= 1) {
    const int next = column + kMatmulChunk;
    if (next < params.columns) {
      fetch(next, shared.chunks[chunk ^ 1]);
      cute::cp_async_wait<1>();
    } else {
      cute::cp_async_wait<0>();
    }
    if (is_fp8(params.weights.dtype)) round_x(shared.chunks[chunk], place.live_rows());
    __syncthreads();
    add_chunk(params, place, column, shared.chunks[chunk], sums);
    if (next < params.columns) put_w(params, place, next, path, shared.chunks[chunk ^ 1], fetched);
    __syncthreads();
  }
  store_sums(params, head, first_row, num_rows, first_output, sums);
}

}  // namespace

void launch_head_matmul(const HeadMatmulParams& params, cudaStream_t stream) {
  const unsigned tiles = num_blocks(params.outputs, kMatmulTile);
  launch(
      multiply_head_tiles,
      {.grid = dim3(static_cast<unsigned>(params.heads), tiles + (params.rope.y != nullptr),
                    num_blocks(params.rows, kMatmulTile)),
       .block = dim3(kMatmulThreads),
       .shared_bytes = params.columns > kMatmulChunk ? sizeof(MatmulShared) : sizeof(MatmulChunk)},
      stream, params);
}

}  // namespace quire::cuda::hopper
