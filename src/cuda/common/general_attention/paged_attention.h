// SPDX-License-Identifier: Apache-2.0
// What the general attention kernel over a paged cache receives.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/common/mask/mask_program.h"
#include "cuda/common/paging/row_reader.h"
#include "cuda/common/softmax/attend_output.h"
#include "cuda/common/softmax/score.h"

namespace quire::cuda {

// A list of blocks of keys for every token and KV head, which see nothing else.
struct KeyBlockLists {
  const std::int32_t* ids = nullptr;  // [tokens, KV heads, slots]; null: no lists
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t slots = 0;
  std::int64_t block_size = 1;
};

struct PagedAttentionParams {
  PlainRows q;  // [tokens, heads, key width]
  std::int64_t tokens = 0;
  std::int32_t group = 1;  // heads that share a KV head
  const std::uint32_t* row_offsets = nullptr;
  RowReader keys;
  RowReader values;  // MLA: the keys again
  ScoreParams score;
  MaskProgram mask;
  AttendOutput output;
  KeyBlockLists blocks{};
};

// Rows of a tile, tokens × group packed, and value columns of a block.
void launch_paged_attention(const PagedAttentionParams& params, cudaStream_t stream);

// The same with lists: rows of one token and KV head, over the keys of its list.
void launch_listed_attention(const PagedAttentionParams& params, cudaStream_t stream);

}  // namespace quire::cuda
