// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/prefill_attention/fp8/transpose_values.h"
#include "cuda/common/prefill_attention/params.h"

namespace quire::cuda::sm90::flash_attention {

// What a kernel finds of V that is transposed into the workspace, and what it transposes itself.
struct TransposedKeys {
  PagedKeys pages{};   // K, and V as the cache holds it
  TensorMap values{};  // (byte, row): 128 × value_dim of a block, transposed
  int blocks = 0;      // of a sequence, in `values`
  int kv_heads = 0;
  TransposedBefore before{};  // by transpose_values()
  // Zero at the start, of transpose_ahead.cuh: blocks that it has transposed, [batch, KV heads], and taken.
  std::uint32_t* done = nullptr;
  std::uint32_t* taken = nullptr;

  // The first row of a block in `values`.
  QUIRE_HOST_DEVICE int row_of(int sequence, int head, int block) const {
    return ((sequence * blocks + block) * kv_heads + head) * kTransposedColumns;
  }
};

}  // namespace quire::cuda::sm90::flash_attention
