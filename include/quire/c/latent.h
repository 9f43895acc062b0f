// SPDX-License-Identifier: Apache-2.0
// Multi-head latent attention: the fused prefill branch with its plan, and the absorbed form for 1 to 8 new tokens.
// quire/ops/mla_prefill.h and quire/ops/mla_decode.h have the formulas.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "quire/c/cache.h"
#include "quire/c/context.h"
#include "quire/c/dlpack.h"
#include "quire/c/export.h"
#include "quire/c/mask.h"
#include "quire/c/status.h"

// Where each sequence's keys stand in the gathered buffer, chunk by chunk.
typedef struct quire_mla_prefill_chunks {
  size_t struct_size;
  const DLTensor* buffer_row_offsets;  // u32 [max_chunks, batch + 1]
  const DLTensor*
      cache_offsets;  // u32 [max_chunks, batch + 1]: first key of each sequence in the chunk
  const DLTensor* buffer_lengths;  // i32 [max_chunks]: rows in use, -1 = chunk unused
  // The rest is optional.
  int64_t buffer_tokens;  // 0: 16384
  int64_t
      decode_tokens;  // 0 to 8: sequences of at most so many new tokens are left out and decoded
} quire_mla_prefill_chunks;

// Chunks that the batch needs where its lengths are on the host; on a device, what full page tables need.
// buffer_tokens 0: 16384.
QUIRE_C_API quire_status quire_mla_prefill_num_chunks(const DLTensor* row_offsets,
                                                      const quire_cache* cache,
                                                      int64_t buffer_tokens, int64_t decode_tokens,
                                                      int64_t* num_chunks);

typedef struct quire_mla_prefill_plan_args {
  size_t struct_size;
  const DLTensor* row_offsets;  // u32 [batch + 1]
  const quire_cache* cache;
  int64_t layer;
  const quire_mla_prefill_chunks* chunks;  // its tensors are written
} quire_mla_prefill_plan_args;

QUIRE_C_API quire_status quire_mla_prefill_plan(const quire_mla_prefill_plan_args* args,
                                                const quire_context* context);

typedef struct quire_mla_prefill_args {
  size_t struct_size;
  const DLTensor*
      q;  // [tokens, heads, nope + rope] f32, f16, bf16; the rope columns are rotated in place
  const DLTensor* row_offsets;  // u32 [batch + 1]
  const quire_cache* cache;     // MLA, row = latent + rope; the new rows are finished in place
  int64_t layer;
  const DLTensor*
      kv_b_proj;  // [heads * (nope + value), latent], per head the K rows, then the V rows; f32, f16, bf16, fp8
  double scale;  // (nope + rope)^-0.5, say
  const quire_mla_prefill_chunks* chunks;
  const DLTensor* out;  // [tokens, heads, value]
  // The rest is optional.
  const DLTensor*
      freqs_cis;  // [max_pos, rope]; NULL with kv_norm_gamma: q and the rows are finished
  const DLTensor* kv_norm_gamma;  // [latent]
  const DLTensor*
      kv;  // raw rows of the new tokens [tokens, latent + rope]; NULL: they are in the cache
  const DLTensor* kv_b_proj_scale;  // fp8: f32 [ceil(rows/128), ceil(latent/128)]
  double epsilon;                   // 0: 1e-6
  const quire_mask* mask;           // NULL: causal
  double softcap;                   // 0: none
  const DLTensor* alibi_slopes;     // f32 [heads]
  const DLTensor* sinks;            // f32 [heads]
  const DLTensor* lse;              // f32 [tokens, heads]; written
  int32_t allow_fp8_products;       // 0 or 1
  int32_t batch_invariant;  // 0 or 1: the same bits in any batch whose keys fit into one chunk
} quire_mla_prefill_args;

QUIRE_C_API quire_status quire_mla_prefill(const quire_mla_prefill_args* args,
                                           const quire_context* context);

typedef struct quire_mla_decode_args {
  size_t struct_size;
  const DLTensor* q;  // [tokens, heads, nope + rope], or absorbed [tokens, heads, latent + rope]
  const DLTensor* row_offsets;  // u32 [batch + 1]
  const quire_cache* cache;     // MLA, any row format; the new rows are finished in place
  int64_t layer;
  double scale;         // of the un-absorbed head: (nope + rope)^-0.5
  const DLTensor* out;  // [tokens, heads, value], absorbed: [tokens, heads, latent]
  // The rest is optional.
  const DLTensor*
      freqs_cis;  // [max_pos, rope]; NULL with kv_norm_gamma: q's rope part and the rows are finished
  const DLTensor* kv_norm_gamma;  // [latent]
  const DLTensor* kv;             // raw rows [tokens, latent + rope]
  const DLTensor* w_uk;  // [heads, latent, nope] f32, f16, bf16, fp8; NULL with w_uv: q is absorbed
  const DLTensor* w_uk_scale;   // fp8: f32 [heads, ceil(latent/128), ceil(nope/128)]
  const DLTensor* w_uv;         // [heads, value, latent]
  const DLTensor* w_uv_scale;   // fp8: f32 [heads, ceil(value/128), ceil(latent/128)]
  double epsilon;               // 0: 1e-6
  const quire_mask* mask;       // NULL: causal
  const DLTensor* sinks;        // f32 [heads]
  const DLTensor* lse;          // f32 [tokens, heads]; written
  int32_t batch_invariant;      // 0 or 1: a sequence's result is the same bits in any batch
  int32_t allow_fp8_products;   // 0 or 1
  const DLTensor* key_lengths;  // u32 [batch]: keys of a sequence; NULL: cached and new tokens
} quire_mla_decode_args;

QUIRE_C_API quire_status quire_mla_decode(const quire_mla_decode_args* args,
                                          const quire_context* context);

// Views, not copies, of the two absorbed weights inside kv_b_proj [heads * (nope + value), latent]. The four DLTensors are
// written; their `shape` and `strides` point to room for three numbers each, which is the caller's.
typedef struct quire_absorb_kv_b_proj_args {
  size_t struct_size;
  const DLTensor* kv_b_proj;
  int64_t heads;
  int64_t nope;
  DLTensor* w_uk;  // [heads, latent, nope]
  DLTensor* w_uv;  // [heads, value, latent]
  // The rest is optional, and given together.
  const DLTensor* kv_b_proj_scale;  // where nope and value are multiples of 128
  DLTensor* w_uk_scale;
  DLTensor* w_uv_scale;
} quire_absorb_kv_b_proj_args;

QUIRE_C_API quire_status quire_absorb_kv_b_proj(const quire_absorb_kv_b_proj_args* args);
