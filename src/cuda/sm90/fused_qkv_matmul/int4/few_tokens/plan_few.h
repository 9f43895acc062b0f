// SPDX-License-Identifier: Apache-2.0
// How up to 16 tokens are shared out among multiprocessors and warps: pure functions of sizes.
#pragma once

#include "cuda/sm90/fused_qkv_matmul/int4/few_tokens/variant_table.h"
#include "cuda/sm90/fused_qkv_matmul/int4/int4_shape.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

struct FewTokensPlan {
  const FewTokensVariant* variant = nullptr;  // null: another kernel's problem
  int quarters = 0;                           // of all
  int blocks = 0;
  int parts = 0;  // warps that share a quarter
  int warps = 0;  // that multiply, in the block with the most quarters
  int stages = 0;
  int stage_bytes = 0;
};

FewTokensPlan plan_few_tokens(const Int4Shape& shape, int num_sms);

}  // namespace quire::cuda::sm90::fused_qkv_matmul
