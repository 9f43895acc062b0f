// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/mla_indexer/finish.h"

#include "cuda/hopper/mla_indexer/merge_row.cuh"
#include "cuda/hopper/mla_indexer/unscored_rows.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {
namespace {

// Thread blocks [0, merges · block_tokens · cluster) merge, those behind them write unscored rows.
template <typename Variant>
__global__ void __launch_bounds__(Variant::kConfig.threads, Variant::kConfig.blocks_per_sm)
    finish_kernel(const __grid_constant__ IndexParams params, int merges) {
  constexpr MergeConfig kConfig = Variant::kConfig;
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<MergeShared<kConfig>*>(memory);
  cudaGridDependencySynchronize();
  const auto cluster = static_cast<int>(cute::cluster_shape().x);
  const auto group = static_cast<int>(blockIdx.x) / cluster;
  const int rows = merges * params.batch.block_tokens;
  if (group < rows) {
    const int rank = static_cast<int>(blockIdx.x) % cluster;
    RowMerge<kConfig>(params, shared, rank, cluster)
        .run(group / params.batch.block_tokens, group % params.batch.block_tokens);
  } else {
    constexpr int kWarps = kConfig.threads / 32;
    const auto first = static_cast<int>(blockIdx.x) - rows * cluster;
    const auto blocks = static_cast<int>(gridDim.x) - rows * cluster;
    write_unscored_rows(params, first * kWarps + static_cast<int>(threadIdx.x) / 32,
                        blocks * kWarps);
  }
}

struct FewRows {
  static constexpr MergeConfig kConfig{
      .threads = 1024, .blocks_per_sm = 1, .codes = 20480, .window_words = 2048};
};
struct ManyRows {
  static constexpr MergeConfig kConfig{
      .threads = 256, .blocks_per_sm = 4, .codes = 5120, .window_words = 1024};
};

template <typename Variant>
void launch_shape(const IndexParams& params, const FinishLaunch& where) {
  constexpr MergeConfig kConfig = Variant::kConfig;
  const int mergers = where.merges * params.batch.block_tokens * where.cluster;
  // A warp to a row; enough to fill the GPU a few times over are enough.
  constexpr int kMostWriters = 1056;
  const int wanted = (params.batch.tokens * 32 + kConfig.threads - 1) / kConfig.threads;
  const int writers = wanted < kMostWriters ? wanted : kMostWriters;
  const int rounded = (writers + where.cluster - 1) / where.cluster * where.cluster;
  launch(finish_kernel<Variant>,
         {.grid = dim3(static_cast<unsigned>(mergers + rounded)),
          .block = dim3(kConfig.threads),
          .cluster = static_cast<unsigned>(where.cluster),
          .shared_bytes = sizeof(MergeShared<kConfig>),
          .overlaps_previous = true},
         where.stream, params, where.merges);
}

}  // namespace

void launch_finish(const IndexParams& params, const FinishLaunch& where) {
  if (where.shape == MergeShape::few_rows) {
    launch_shape<FewRows>(params, where);
  } else {
    launch_shape<ManyRows>(params, where);
  }
}

}  // namespace quire::cuda::hopper
