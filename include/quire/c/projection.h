// SPDX-License-Identifier: Apache-2.0
// Y = X · Wᵀ (+ bias): of a ragged batch with K and V straight into the pages (quire/ops/fused_qkv_matmul.h has the
// details), and without a cache (quire/ops/linear.h).
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "quire/c/cache.h"
#include "quire/c/context.h"
#include "quire/c/dlpack.h"
#include "quire/c/export.h"
#include "quire/c/status.h"
#include "quire/c/weight.h"

enum {
  QUIRE_ACTIVATIONS_EXACT = 0,
  QUIRE_ACTIVATIONS_INT8 = 1,  // x rounded to 8-bit integers before the product
};

typedef struct quire_fused_qkv_matmul_args {
  size_t struct_size;
  const DLTensor* x;            // [tokens, hidden] f32, f16, bf16, or fp8 with input_scale
  const DLTensor* row_offsets;  // u32 [batch + 1]
  const quire_weight* weight;   // [q_dim + 2 * kv_dim, hidden]; MLA: [q_dim + row, hidden]
  const quire_cache* cache;     // written at the new tokens' rows of `layer`
  int64_t layer;
  const DLTensor* out;  // [tokens, q_dim] f32, f16 or bf16
  // The rest is optional.
  const DLTensor* bias;  // [N] f32, or the dtype of out
  const DLTensor*
      input_scale;      // fp8 x: f32 [1, 1], [tokens, 1] or [tokens, ceil(hidden/128)], any strides
  int32_t activations;  // QUIRE_ACTIVATIONS_*
  int32_t allow_fast_accum;  // 0 or 1
  int32_t allow_tf32;        // 0 or 1
  int32_t
      batch_invariant;  // 0 or 1: a token's result is the same bits whatever the number of tokens
} quire_fused_qkv_matmul_args;

QUIRE_C_API quire_status quire_fused_qkv_matmul(const quire_fused_qkv_matmul_args* args,
                                                const quire_context* context);

typedef struct quire_linear_args {
  size_t struct_size;
  const DLTensor* x;           // [tokens, hidden] f32, f16, bf16, or fp8 with input_scale
  const quire_weight* weight;  // [N, hidden]
  const DLTensor* out;         // [tokens, N] f32, f16 or bf16
  // The rest is optional.
  const DLTensor* bias;  // [N] f32, or the dtype of out
  const DLTensor*
      input_scale;      // fp8 x: f32 [1, 1], [tokens, 1] or [tokens, ceil(hidden/128)], any strides
  int32_t activations;  // QUIRE_ACTIVATIONS_*
  int32_t allow_fast_accum;  // 0 or 1
  int32_t allow_tf32;        // 0 or 1
  int32_t
      batch_invariant;  // 0 or 1: a token's result is the same bits whatever the number of tokens
} quire_linear_args;

QUIRE_C_API quire_status quire_linear(const quire_linear_args* args, const quire_context* context);
