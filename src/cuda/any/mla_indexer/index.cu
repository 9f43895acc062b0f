// SPDX-License-Identifier: Apache-2.0
// A block per token: scores of its keys into the block's own row of scratch, then the selection.
#include "cuda/any/mla_indexer/score_keys.cuh"
#include "cuda/any/mla_indexer/select.cuh"
#include "cuda/common/rows/token_place.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::any::mla_indexer {
namespace {

struct IndexerShared {
  ScoreShared score;
  GeneralSelectShared select;
};

// Keys that the token may see and that the page table has room for.
__device__ std::int64_t bound_of(const IndexerParams& params, const TokenPlace& place) {
  const std::int64_t num_keys = std::int64_t{params.keys.view.cache_lengths[place.sequence]} +
                                params.row_offsets[place.sequence + 1] -
                                params.row_offsets[place.sequence];
  return min(params.is_causal ? place.position + 1 : num_keys, params.capacity);
}

__device__ void index_token(const IndexerParams& params, std::int64_t token,
                            const TokenPlace& place, IndexerShared& shared) {
  const KvLayerView& view = params.keys.view;
  const std::int64_t bound = bound_of(params, place);
  std::int32_t* out = params.out + token * params.out_stride;
  if (bound <= params.top_k) {
    const auto mapped = [&](std::int64_t key) {
      return view.is_mapped(place.sequence, key) ? kNanRank : kAbsentRank;
    };
    return write_selection(mapped, bound, {.rank = kAbsentRank, .ties = 0}, params.top_k, out,
                           shared.select);
  }
  std::uint32_t* ranks = params.ranks + blockIdx.x * params.capacity;
  const IndexedToken at{.token = token, .sequence = static_cast<int>(place.sequence)};
  for (std::int64_t first = 0; first < bound; first += kIndexerTile) {
    score_tile(params, at, first, bound, shared.score, ranks);
  }
  __syncthreads();
  const Threshold threshold = find_threshold(ranks, bound, params.top_k, shared.select);
  write_selection([&](std::int64_t key) { return ranks[key]; }, bound, threshold, params.top_k, out,
                  shared.select);
}

__global__ void __launch_bounds__(kIndexerThreads, 2)
    index_tokens(const __grid_constant__ IndexerParams params) {
  __shared__ IndexerShared shared;
  const KvLayerView& view = params.keys.view;
  for (std::int64_t token = blockIdx.x; token < params.tokens; token += params.num_blocks) {
    const TokenPlace place =
        place_of_token(params.row_offsets, view.cache_lengths, view.batch, token);
    if (!place.exists()) continue;
    index_token(params, token, place, shared);
    __syncthreads();  // the next token's scores overwrite what the selection reads
  }
}

}  // namespace

void launch_indexer(const IndexerParams& params, cudaStream_t stream) {
  launch(index_tokens,
         {.grid = dim3(static_cast<unsigned>(params.num_blocks)), .block = dim3(kIndexerThreads)},
         stream, params);
}

}  // namespace quire::cuda::any::mla_indexer
