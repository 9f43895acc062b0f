// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/hopper/flash_attention/prefill/params.h"

namespace quire::cuda::hopper {

// Where flipped_source.cuh finds K, in the pages, and V, in the workspace.
struct FlippedKeys {
  PagedKeys pages{};   // its map of values is not used
  TensorMap values{};  // (byte, row): 128 × value_dim of a block, as flip_values() left them
  int blocks = 0;      // of a sequence, in `values`
  int kv_heads = 0;
};

}  // namespace quire::cuda::hopper
