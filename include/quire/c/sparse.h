// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V3.2: rows of the indexer, its top-k, attention over the chosen rows. quire/ops/store_index_keys.h,
// quantize_index_queries.h, mla_indexer.h, sparse_mla.h and remap_sparse_indices.h have the formulas.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "quire/c/cache.h"
#include "quire/c/context.h"
#include "quire/c/dlpack.h"
#include "quire/c/export.h"
#include "quire/c/mask.h"
#include "quire/c/rows.h"
#include "quire/c/status.h"

typedef struct quire_store_index_keys_args {
  size_t struct_size;
  const DLTensor* x;            // [tokens, head_dim] f32, f16, bf16
  const DLTensor* row_offsets;  // u32 [batch + 1]
  const quire_cache* cache;     // K only, one head, fp8_e4m3 [.., head_dim], f32 scale per token
  int64_t layer;
  // The rest is optional.
  const DLTensor* norm_weight;  // [head_dim]; NULL: no LayerNorm
  const DLTensor* norm_bias;    // [head_dim]; with norm_weight
  double epsilon;               // 0: 1e-6
  const DLTensor* freqs_cis;    // [max_pos, rope_dim] cos, sin interleaved; NULL: no rope
  int32_t interleaved;          // 0 or 1
  int32_t hadamard;             // 0 or 1; head_dim must be a power of two
  int32_t scale_rounding;       // QUIRE_SCALE_ROUNDING_*; 0: power_of_two
  int32_t reserved;             // 0
} quire_store_index_keys_args;

QUIRE_C_API quire_status quire_store_index_keys(const quire_store_index_keys_args* args,
                                                const quire_context* context);

typedef struct quire_quantize_index_queries_args {
  size_t struct_size;
  const DLTensor* q;            // [tokens, heads, head_dim] f32, f16, bf16
  const DLTensor* row_offsets;  // u32 [batch + 1]
  const quire_cache* cache;     // for the positions
  const DLTensor* out;          // fp8_e4m3 [tokens, heads, head_dim]
  const DLTensor* q_scale;      // f32 [tokens, heads]; written
  // The rest is optional.
  const DLTensor* weights;    // [tokens, heads], any strides; NULL: 1
  double factor;              // 0: 1
  const DLTensor* freqs_cis;  // [max_pos, rope_dim]; NULL: no rope
  int32_t interleaved;        // 0 or 1
  int32_t hadamard;           // 0 or 1
  int32_t scale_rounding;     // QUIRE_SCALE_ROUNDING_*; 0: power_of_two
  int32_t reserved;           // 0
} quire_quantize_index_queries_args;

QUIRE_C_API quire_status quire_quantize_index_queries(const quire_quantize_index_queries_args* args,
                                                      const quire_context* context);

// `ratio` tokens become one row of a cache: gated softmax pooling, norm, rope, store (quire/ops/compress_keys.h).
typedef struct quire_compress_keys_args {
  size_t struct_size;
  const DLTensor* kv;    // [tokens, series * width] f32, f16, bf16; series: 1, or 2 with overlap
  const DLTensor* gate;  // the same shape and dtype
  const DLTensor* bias;  // [ratio, series * width]
  const DLTensor* row_offsets;  // u32 [batch + 1]
  const quire_cache*
      cache;  // K only, one head; its lengths count tokens, of which `ratio` are a row
  int64_t layer;
  const DLTensor* gamma;      // [width]
  const DLTensor* freqs_cis;  // [max_pos, rope] cos, sin interleaved
  const DLTensor* state;      // kv's dtype or f32 [slots, rows, 2, series * width]; written
  // The rest is optional.
  const DLTensor* state_slots;  // u32 [batch]; NULL: sequence b has slot b
  double epsilon;               // 0: 1e-6
} quire_compress_keys_args;
QUIRE_C_API quire_status quire_compress_keys(const quire_compress_keys_args* args,
                                             const quire_context* context);

typedef struct quire_mla_indexer_args {
  size_t struct_size;
  const DLTensor* q;            // fp8_e4m3 [tokens, heads, head_dim]
  const DLTensor* q_scale;      // f32 [tokens, heads]
  const DLTensor* row_offsets;  // u32 [batch + 1]
  const quire_cache* cache;     // K only, one head, fp8_e4m3 [.., head_dim], f32 scale per token
  int64_t layer;
  const DLTensor* out;  // i32 [tokens, top_k]
  // The rest is optional.
  int64_t top_k;            // 0: 2048
  const quire_mask* mask;   // causal or full; NULL: causal
  int32_t batch_invariant;  // 0 or 1: a token's positions are the same in any batch
  int32_t reserved;         // 0
  const DLTensor*
      scores;  // f32 [tokens, top_k]: of the positions in out, -inf where there is none; written
  int64_t
      tokens_per_key;  // 0: 1; more: a key stands for so many tokens, as quire_compress_keys writes them
} quire_mla_indexer_args;

QUIRE_C_API quire_status quire_mla_indexer(const quire_mla_indexer_args* args,
                                           const quire_context* context);

// A second stream of rows that are attended after the chosen ones, with its own cache and indices.
typedef struct quire_sparse_extra {
  size_t struct_size;
  const quire_cache* cache;
  int64_t layer;
  const DLTensor* indices;  // i32 [tokens, extra_k]
  // The rest is optional.
  const DLTensor* lengths;  // i32 [tokens]
  int64_t
      tokens_per_row;  // 0: 1; more: a row stands for so many tokens, as quire_compress_keys writes them
} quire_sparse_extra;

typedef struct quire_sparse_mla_args {
  size_t struct_size;
  const DLTensor* q;            // absorbed [tokens, heads, latent + rope] f32, f16, bf16
  const DLTensor* row_offsets;  // u32 [batch + 1]
  const quire_cache* cache;     // MLA, any row format
  int64_t layer;
  const DLTensor* indices;  // i32 [tokens, top_k]
  double scale;
  const DLTensor* out;  // [tokens, heads, latent]
  // The rest is optional.
  const DLTensor* topk_lengths;  // i32 [tokens]: slots of each row to look at
  const DLTensor* sinks;         // f32 [heads]
  const quire_sparse_extra* extra;
  const DLTensor* lse;      // f32 [tokens, heads]; written
  int32_t batch_invariant;  // 0 or 1: a token's result is the same bits in any batch
  int32_t reserved;         // 0
} quire_sparse_mla_args;

QUIRE_C_API quire_status quire_sparse_mla(const quire_sparse_mla_args* args,
                                          const quire_context* context);

typedef struct quire_remap_sparse_indices_args {
  size_t struct_size;
  const DLTensor* indices;      // i32 [tokens, top_k], any strides
  const DLTensor* row_offsets;  // u32 [batch + 1]
  const quire_cache* cache;
  const DLTensor* out;  // i32 [tokens, top_k]; may be indices itself
} quire_remap_sparse_indices_args;

QUIRE_C_API quire_status quire_remap_sparse_indices(const quire_remap_sparse_indices_args* args,
                                                    const quire_context* context);
