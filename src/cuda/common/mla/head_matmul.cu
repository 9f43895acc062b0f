// SPDX-License-Identifier: Apache-2.0
// A block: 64 rows × some tiles of 64 outputs of one head, 128 columns at a time; a warp has 16 of the
// rows. Products of e4m3 are exact in bf16: a group's sums are scaled in fp32.
#include "cuda/common/mla/head_product.h"

#include <algorithm>

#include "cuda/common/mla/finish_row.cuh"
#include "cuda/common/mla/head_matmul.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda {
namespace {

// A function of its own: its doubles would stand between the products' code.
__device__ __noinline__ void rotate_tile(const RotateQueriesParams& rope, std::int64_t first_row,
                                         int head, TokenPlace* places) {
  if (threadIdx.x < kMatmulTile) {
    const std::int64_t token = first_row + threadIdx.x;
    places[threadIdx.x] = token < rope.tokens ? place_of_token(rope.row_offsets, rope.cache_lengths,
                                                               rope.batch, token)
                                              : TokenPlace{};
  }
  __syncthreads();
  const int pairs = rope.rope / 2;
#pragma unroll 1
  for (int index = static_cast<int>(threadIdx.x); index < kMatmulTile * pairs;
       index += kMatmulThreads) {
    const TokenPlace place = places[index / pairs];
    if (!place.exists()) continue;
    rotate_query(rope, place, first_row + index / pairs, head, index % pairs);
  }
}

__device__ void store_sums(const HeadProductParams& params, const MatmulPlace& place,
                           const MatmulSums& sums) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const auto warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::int64_t row = place.first_row + 16 * warp + lane / 4 + 8 * i;
    if (row >= place.num_rows) continue;
    std::byte* y = params.y + row * params.y_row_bytes + place.head * params.y_head_bytes;
#pragma unroll
    for (int j = 0; j < kMatmulTile / 8; ++j) {
      const int output = place.first_output + 8 * j + lane % 4 * 2;
      if (output >= params.outputs) continue;
      *reinterpret_cast<__nv_bfloat162*>(y + 2 * output) =
          __floats2bfloat162_rn(sums[j][2 * i], sums[j][2 * i + 1]);
    }
  }
}

// What a block does: its tiles of outputs, chunk by chunk of columns, the weights of a step fetched
// during the one before. A single chunk of x stays for all tiles.
class HeadTiles {
 public:
  __device__ HeadTiles(const HeadProductParams& params, MatmulPlace place, MatmulShared& shared)
      : params_(params),
        place_(place),
        shared_(shared),
        path_(weight_path(params.weights)),
        chunks_(params.x.width / kMatmulChunk) {}

  __device__ void run(int steps) {
    fetch(0);
    put(0);
    MatmulSums sums = {};
    for (int step = 0; step < steps; ++step) {
      if (step + 1 < steps) {
        fetch(step + 1);
        cute::cp_async_wait<1>();
      } else {
        cute::cp_async_wait<0>();
      }
      if (is_fp8(params_.weights.dtype) && brings_x(step)) round_x(x(step), place_.live_rows());
      __syncthreads();
      add_chunk(params_, tile_of(step), column_of(step), x(step), shared_.w[step % 2], sums);
      if (step + 1 < steps) put(step + 1);
      if (step % chunks_ == chunks_ - 1) {
        store_sums(params_, tile_of(step), sums);
        for (auto& sum : sums) sum[0] = sum[1] = sum[2] = sum[3] = 0.0F;
      }
      __syncthreads();
    }
  }

 private:
  __device__ bool brings_x(int step) const { return chunks_ > 1 || step == 0; }
  __device__ MatmulX& x(int step) const { return shared_.x[chunks_ > 1 ? step % 2 : 0]; }
  __device__ int column_of(int step) const { return step % chunks_ * kMatmulChunk; }
  __device__ MatmulPlace tile_of(int step) const {
    MatmulPlace place = place_;
    place.first_output += step / chunks_ * kMatmulTile;
    return place;
  }

  __device__ void fetch(int step) {
    if (brings_x(step)) fetch_x(params_, place_, column_of(step), x(step));
    fetch_w(params_, tile_of(step), column_of(step), path_, shared_.w[step % 2], fetched_);
    cute::cp_async_fence();
  }
  __device__ void put(int step) {
    put_w(params_, tile_of(step), column_of(step), path_, shared_.w[step % 2], fetched_);
  }

  const HeadProductParams& params_;
  MatmulPlace place_;
  MatmulShared& shared_;
  WeightPath path_;
  int chunks_;
  FetchedWeights fetched_;
};

__global__ void __launch_bounds__(kMatmulThreads)
    multiply_head_tiles(const __grid_constant__ HeadProductParams params) {
  extern __shared__ __align__(16) std::byte memory[];
  const int head = static_cast<int>(blockIdx.x);
  // Rope, where there is some, comes first: its blocks take the longest.
  const int number = static_cast<int>(blockIdx.y) - (params.rope.y != nullptr ? 1 : 0);
  const int first_output = number * params.block_tiles * kMatmulTile;
  const std::int64_t first_row = std::int64_t{blockIdx.z} * kMatmulTile;
  const std::int64_t num_rows = min(params.rows, std::int64_t{*params.live_rows});
  if (first_row >= num_rows) return;
  if (number < 0) {
    return rotate_tile(params.rope, first_row, head, reinterpret_cast<TokenPlace*>(memory));
  }
  const int tiles = (params.outputs - first_output + kMatmulTile - 1) / kMatmulTile;
  HeadTiles(
      params,
      {.head = head, .first_row = first_row, .num_rows = num_rows, .first_output = first_output},
      *reinterpret_cast<MatmulShared*>(memory))
      .run(min(tiles, params.block_tiles) * (params.x.width / kMatmulChunk));
}

// x of a single chunk is rounded once for all tiles of a block: as many of them as leave every
// multiprocessor some blocks.
int tiles_of_block(const HeadProductParams& params, unsigned tiles, unsigned row_tiles) {
  constexpr std::int64_t kManyBlocks = 384;
  constexpr std::int64_t kMostTiles = 4;
  if (params.x.width > kMatmulChunk) return 1;
  const std::int64_t blocks = std::int64_t{params.heads} * tiles * row_tiles;
  return static_cast<int>(std::clamp<std::int64_t>(blocks / kManyBlocks, 1, kMostTiles));
}

}  // namespace

void launch_head_matmul(const HeadProductParams& params, cudaStream_t stream) {
  static_assert(sizeof(MatmulShared) <= kSharedBytesOfEveryGpu);
  const unsigned tiles = num_blocks(params.outputs, kMatmulTile);
  const unsigned row_tiles = num_blocks(params.rows, kMatmulTile);
  HeadProductParams own = params;
  own.block_tiles = tiles_of_block(params, tiles, row_tiles);
  const unsigned columns = num_blocks(tiles, own.block_tiles) + (params.rope.y != nullptr);
  launch(multiply_head_tiles,
         {.grid = dim3(static_cast<unsigned>(params.heads), columns, row_tiles),
          .block = dim3(kMatmulThreads),
          .shared_bytes = MatmulShared::bytes(params.x.width / kMatmulChunk)},
         stream, own);
}

}  // namespace quire::cuda
