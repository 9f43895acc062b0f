// SPDX-License-Identifier: Apache-2.0
// Shared memory of the tile kernel.
#pragma once

#include "cuda/common/matmul/config.h"
#include "cuda/common/matmul/dense_rows.cuh"
#include "cuda/common/matmul/params.h"
#include "cuda/common/mma/wgmma.cuh"
#include "cuda/common/pipeline/ring.cuh"
#include "cuda/common/thread/thread.cuh"

namespace quire::cuda {

// Columns that share a scale and stand in the tiles of two blocks: each block tells the other, which is rank ^ 1 in
// the cluster, the largest magnitude of its part.

// Shared memory; nothing where every tile has its granules whole.
template <TileConfig kConfig> struct GranulePair {
  __device__ void init() {}
};

template <TileConfig kConfig>
requires(kConfig.pairs_granules()) struct GranulePair<kConfig> {
  // Two buffers that alternate: the other block is at most one ahead.
  float largest[2][kConfig.tokens()];
  FullBarrier full[2][kConfig.consumers];

  __device__ void init() {
    for (auto& buffer : full) {
      for (FullBarrier& barrier : buffer) barrier.init(1);
    }
  }

  // By all threads of a warpgroup: of rows `row` and `row + 8` the larger of both parts, for the `count`-th time.
  __device__ void exchange(int consumer, int row, int count, float (&own)[2]) {
    const int buffer = count % 2;
    FullBarrier& barrier = full[buffer][consumer];
    if (threadIdx.x % 128 == 0) barrier.arrive_and_expect_tx(kWgmmaRows * sizeof(float));
    const std::uint32_t other = cute::block_rank_in_cluster() ^ 1;
    if (threadIdx.x % 4 == 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        asm volatile(
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                address_in_block(&largest[buffer][row + 8 * half], other)),
            "r"(__float_as_uint(own[half])), "r"(address_in_block(&barrier, other))
            : "memory");
      }
    }
    barrier.wait(count / 2 % 2);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      own[half] = fmaxf(own[half], largest[buffer][row + 8 * half]);
    __syncwarp();  // all of them have read before one of them sends again
  }
};

// The scales of an fp8 product, on their way through shared memory. Loaded by the threads that
// multiply, they cost more than the stores of a tile do.

template <TileConfig kConfig, Scaling kScaling = kConfig.scaling> struct SharedScales {};

// Of finished sums, in kv_stages() buffers.
template <TileConfig kConfig> struct SharedScales<kConfig, Scaling::rows> {
  alignas(16) float columns[kConfig.kv_stages()][kConfig.tile_n];
  float tokens[kConfig.kv_stages()][kConfig.tokens()];
};

// Of the sums over a block of K as well; a stage holds one block.
template <TileConfig kConfig>
struct SharedScales<kConfig, Scaling::blocks> : SharedScales<kConfig, Scaling::rows> {
  float2 block_weights[kConfig.stages];  // a tile touches at most two blocks of 128 weight rows
  // Rows r and r + 8 of the tile side by side: a thread that multiplies has both, and every line of
  // shared memory that is read costs the tensor cores a clock.
  float2 block_tokens[kConfig.stages][kConfig.tokens() / 2];
};

// Where block_tokens has those of rows r and r + 8.
__device__ inline int pair_of_row(int row) {
  return row / 16 * 8 + row % 8;
}

// Tokens and columns past the end use the last one's scale.
__device__ inline float token_scale(const QkvScales& scales, int token, int tokens) {
  if (scales.x_by_block) return 1.0f;
  return __ldg(scales.x + min(token, tokens - 1) * scales.x_token_stride);
}
__device__ inline float column_scale(const QkvScales& scales, int column, int columns) {
  if (scales.weight_by_block) return 1.0f;
  return __ldg(scales.weight + min(column, columns - 1) * scales.weight_row_stride);
}

template <TileConfig kConfig> struct TileShared {
  alignas(1024) std::byte x[kConfig.stages][kConfig.kept_tokens * kRowBytes];
  alignas(1024) std::byte weight[kConfig.stages][kConfig.tile_n * kRowBytes];
  // Of kv_stages() tiles: each token's address, before and from the border between Q, K and V on, and what
  // a column gets added, 0 without a bias. A tile that needs an address for each run has the byte
  // offset of each token's K row in the pool instead, -1 where nothing is stored, and that of its first scale.
  union TokenPlaces {
    std::byte* rows[2][kConfig.tokens()];
    std::int64_t offsets[2][kConfig.tokens()];
  } places[kConfig.kv_stages()];
  TileRoute routes[kConfig.kv_stages()];
  alignas(16) float bias[kConfig.kv_stages()][kConfig.tile_n];
  SharedScales<kConfig> scales;
  RingBarriers<kConfig.stages> ring;
  RingBarriers<kConfig.kv_stages()> kv_ring;
  GranulePair<kConfig> pair;

  __device__ void init() {
    ring.init(1 + 32 * kConfig.scale_warps(), kConfig.consumers * kConfig.cluster);
    kv_ring.init(kConfig.address_threads(), 128 * kConfig.consumers);
    pair.init();
  }
};

// By a whole warpgroup: the stage may be filled again, by every block that multicasts into it. `thread` of the
// warpgroup's 128.
template <TileConfig kConfig>
__device__ void release(TileShared<kConfig>& shared, int stage, int thread) {
  if constexpr (kConfig.cluster == 1) {
    if (thread == 0) shared.ring.empty[stage].arrive();
  } else {
    if (thread < kConfig.cluster) shared.ring.empty[stage].arrive(thread);
  }
}

template <TileConfig kConfig> __device__ void release(TileShared<kConfig>& shared, int stage) {
  release<kConfig>(shared, stage, static_cast<int>(threadIdx.x % 128));
}

}  // namespace quire::cuda
