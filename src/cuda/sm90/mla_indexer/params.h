// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/common/paging/operand.h"
#include "cuda/common/runtime/tensor_map.h"
#include "cuda/sm90/mla_indexer/config.h"
#include "cuda/sm90/mla_indexer/split_schedule.h"

namespace quire::cuda::sm90::mla_indexer {

struct IndexPages {
  PageTable keys{};
  PageTable scales{};
  int box_rows = 0;  // rows of a page that one copy brings: 16, 32 or 64, and divides page_size
};

struct IndexWeights {
  const float* data = nullptr;  // q_scale [tokens, heads]
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
};

// Of one token's row. The first `head` codes are those from `bound` on: where a row has many pieces, no
// others of it are likely to be among the best.
struct RowPart {
  int count = 0;  // of codes
  int head = 0;
  std::uint32_t least = 0;  // of the head's ranks
  std::uint32_t greatest = 0;
  std::uint64_t bound = 0;
};

// What a CTA leaves of a block of tokens whose keys others have scored too.
struct alignas(16) PieceHeader {
  int first_token = -1;  // row of q; -1: no piece
  int first_tile = 0;
  int end_tile = 0;
  int continues = 0;    // 1: the next CTA has the keys that follow
  int scored_rows = 0;  // bit t: token t asks for a selection
  RowPart rows[IndexConfig::kMaxTokens] = {};
};

struct IndexPieces {
  PieceHeader* headers = nullptr;  // [CTAs][2]: the piece begun before, the piece begun here
  std::uint64_t* codes = nullptr;  // [CTAs][2][block_tokens][kPoolKeys] (rank.cuh)
};

struct IndexParams {
  TensorMap q{};           // (column, head of a group, token, group); boxes of a block of tokens
  TensorMap keys{};        // (column, row of the page, page); boxes of dims × box_rows
  TensorMap key_scales{};  // (row of the page, page); boxes of box_rows
  IndexWeights weights{};
  IndexBatch batch{};
  IndexPages pages{};
  std::int32_t* out = nullptr;  // [tokens, top_k]
  std::int64_t out_stride = 0;
  IndexPieces pieces{};
  int parts = 0;  // CTAs that score
};

// The border between host code and one compiled kernel: src/cuda/variants.cmake instantiates it.

template <typename Variant> void launch_index(const IndexParams& params, cudaStream_t stream);

// The rows that no CTA scored alone: those merged from several pieces, and those that see no
// more than top_k keys.

// merges: blocks of tokens that may have been cut, at most.
void launch_finish(const IndexParams& params, int merges, cudaStream_t stream);

}  // namespace quire::cuda::sm90::mla_indexer
