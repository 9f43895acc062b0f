// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/hopper/fused_qkv_matmul/params.h"
#include "cuda/tile/ragged.cuh"

namespace quire::cuda::hopper {

// Byte offset of the token's K row (head 0) from keys.data; -1 for a token past the end or a page
// that is not there.
__device__ inline std::int64_t kv_offset(const QkvOutputs& outputs, int token) {
  if (token >= outputs.tokens) return -1;
  const std::uint32_t* offsets = outputs.row_offsets;
  const int sequence = sequence_of(offsets, outputs.batch, static_cast<std::uint32_t>(token));
  const std::int64_t position =
      std::int64_t{outputs.keys.cache_lengths[sequence]} + token - offsets[sequence];
  const std::byte* row = outputs.keys.row(sequence, position, 0);
  return row == nullptr ? -1 : row - outputs.keys.data;
}

}  // namespace quire::cuda::hopper
