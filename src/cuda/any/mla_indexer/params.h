// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/common/paging/row_reader.h"

namespace quire::cuda::any::mla_indexer {

struct IndexerParams {
  PlainRows q;  // fp8 [tokens, heads, depth]
  std::int64_t tokens = 0;
  std::int32_t heads = 0;
  const float* q_scale = nullptr;  // [tokens, heads]
  std::int64_t q_scale_token_stride = 0;
  std::int64_t q_scale_head_stride = 0;
  const std::uint32_t* row_offsets = nullptr;
  RowReader keys;
  bool is_causal = true;
  std::int64_t tokens_per_key = 1;  // lengths and positions count tokens
  std::int64_t top_k = 0;
  std::int32_t* out = nullptr;  // [tokens, top_k]
  std::int64_t out_stride = 0;
  float* scores = nullptr;  // [tokens, top_k]; null: not wanted
  std::int64_t scores_stride = 0;
  std::uint32_t* ranks = nullptr;  // scratch [blocks, capacity]
  std::int64_t capacity = 0;       // keys that a page table row can hold
  std::int32_t num_blocks = 0;     // each takes every num_blocks-th token
};

void launch_indexer(const IndexerParams& params, cudaStream_t stream);
// Of the positions in `out`, in fp32 and always in the same order of sums.
void launch_scores(const IndexerParams& params, cudaStream_t stream);

}  // namespace quire::cuda::any::mla_indexer
