// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/fused_qkv_matmul/int4/params.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

struct FewTokensParams {
  Int4Params product{};  // x: boxes of all tokens × 2 · parts units of 64 columns
  int quarters = 0;      // of all panels that have columns of Y; a block has some in a row
  // Warps that share a quarter: warp p of them has steps p, p + parts, …
  int parts = 0;
  int stages = 0;  // of x, `parts` steps each
  int stage_bytes = 0;
};

}  // namespace quire::cuda::sm90::fused_qkv_matmul
