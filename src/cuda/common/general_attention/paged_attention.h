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
};

// Rows of a tile, tokens × group packed, and value columns of a block.
void launch_paged_attention(const PagedAttentionParams& params, cudaStream_t stream);

}  // namespace quire::cuda
