// SPDX-License-Identifier: Apache-2.0
// Attention of a Llama-sized layer, as plans see it: 32 query heads on 8, 128 wide, bf16.
#pragma once

#include "quire/ops/flash_attention.h"

namespace quire::test {

inline FlashAttentionProblem llama_attention(const RaggedSize& ragged, std::int64_t page_size) {
  FlashAttentionProblem problem;
  problem.ragged = ragged;
  problem.cache = {.row_format = RowFormat::uniform(DType::bf16, 128),
                   .num_pages = 512,
                   .num_layers = 1,
                   .page_size = page_size,
                   .num_kv_heads = 8,
                   .max_pages = 512};
  problem.heads = 32;
  problem.head_dim = 128;
  problem.value_dim = 128;
  problem.mask = Mask::causal().summary();
  problem.alignment = 256;
  return problem;
}

}  // namespace quire::test
