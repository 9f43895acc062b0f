// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_indexer/params.h"

#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/mla_indexer/merge_row.cuh"
#include "cuda/sm90/mla_indexer/write_row.cuh"

namespace quire::cuda::sm90::mla_indexer {
namespace {

// CTAs [0, merges · block_tokens) merge when all pieces are there; those behind them write unscored
// rows, for which they wait for nobody.
__global__ void __launch_bounds__(kMergeThreads, 1)
    finish_kernel(const __grid_constant__ IndexParams params, int merges) {
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<MergeShared*>(memory);
  const auto block = static_cast<int>(blockIdx.x);
  const int rows = merges * params.batch.block_tokens;
  if (block < rows) {
    RowMerge(params, shared)
        .run(block / params.batch.block_tokens, block % params.batch.block_tokens);
  } else {
    constexpr int kWarps = kMergeThreads / 32;
    const auto blocks = static_cast<int>(gridDim.x) - rows;
    const auto warp = static_cast<int>(threadIdx.x) / 32;
    write_unscored_rows(params, warp * blocks + block - rows, blocks * kWarps);
  }
}

}  // namespace

void launch_finish(const IndexParams& params, int merges, cudaStream_t stream) {
  // A warp to a row, few rows to a CTA: all SMs write. Enough to fill the GPU a few times over
  // are enough.
  constexpr int kMostWriters = 264;
  constexpr int kRows = 16;
  const int wanted = (params.batch.tokens + kRows - 1) / kRows;
  const int writers = wanted < kMostWriters ? wanted : kMostWriters;
  launch(finish_kernel,
         {.grid = dim3(static_cast<unsigned>(merges * params.batch.block_tokens + writers)),
          .block = dim3(kMergeThreads),
          .shared_bytes = sizeof(MergeShared),
          .overlaps_previous = true},
         stream, params, merges);
}

}  // namespace quire::cuda::sm90::mla_indexer
