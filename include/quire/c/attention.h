// SPDX-License-Identifier: Apache-2.0
// Attention of a ragged batch over the paged cache, what chooses blocks of keys for it, and what joins partial results.
// quire/ops/flash_attention.h, select_blocks.h and merge_states.h have the formulas.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "quire/c/cache.h"
#include "quire/c/context.h"
#include "quire/c/dlpack.h"
#include "quire/c/export.h"
#include "quire/c/mask.h"
#include "quire/c/status.h"

typedef struct quire_flash_attention_args {
  size_t struct_size;
  const DLTensor* q;            // [tokens, heads, head_dim] f32, f16, bf16
  const DLTensor* row_offsets;  // u32 [batch + 1]
  const quire_cache* cache;     // the keys' K and V are in it already; NULL: see k
  int64_t layer;
  const DLTensor* out;  // [tokens, heads, value_dim]; value_dim <= head_dim
  // The rest is optional.
  const quire_mask* mask;        // NULL: causal
  double scale;                  // 0: head_dim^-0.5
  double softcap;                // 0: none
  const DLTensor* alibi_slopes;  // f32 [heads]
  const DLTensor* sinks;         // f32 [heads], natural-log units
  const DLTensor* lse;           // f32 [tokens, heads]; written
  int32_t
      batch_invariant;  // 0 or 1: a sequence's result is the same bits in any batch of the same max_seq_length
  int32_t allow_fp8_products;  // 0 or 1
  int64_t
      shared_prefix_pages;  // so many first pages are the same in the tables of all sequences with new tokens
  const DLTensor* key_lengths;  // u32 [batch]: keys of a sequence; NULL: cached and new tokens
  int64_t max_workspace_bytes;  // of copies of K and V; 0: 1 GiB
  // In place of the cache, which is then NULL: K and V of a ragged batch without pages.
  const DLTensor* k;            // [total_keys, kv_heads, head_dim]
  const DLTensor* v;            // [total_keys, kv_heads, value_dim or more], of k's dtype
  const DLTensor* key_offsets;  // u32 [batch + 1]; query i stands at keys - queries + i
  const DLTensor*
      key_blocks;          // i32 [tokens, kv_heads, max_blocks]: the blocks of keys that heads see
  int64_t key_block_size;  // 0: 128
} quire_flash_attention_args;

QUIRE_C_API quire_status quire_flash_attention(const quire_flash_attention_args* args,
                                               const quire_context* context);

// The blocks of keys that block-sparse attention reads, as flash_attention takes them (quire/ops/select_blocks.h).
typedef struct quire_select_blocks_args {
  size_t struct_size;
  const DLTensor* q;            // [tokens, heads, head_dim] f32, f16, bf16
  const DLTensor* row_offsets;  // u32 [batch + 1]
  const quire_cache* cache;     // its keys; V is not read
  int64_t layer;
  const DLTensor* out;  // i32 [tokens, heads, max_blocks]; written
  // The rest is optional.
  int64_t block_size;      // keys of a block; 0: 128
  int64_t first_blocks;    // of a sequence, that every row holds
  int64_t local_blocks;    // up to the token's own, that every row holds
  const quire_mask* mask;  // causal or full; NULL: causal
} quire_select_blocks_args;

QUIRE_C_API quire_status quire_select_blocks(const quire_select_blocks_args* args,
                                             const quire_context* context);

typedef struct quire_merge_states_args {
  size_t struct_size;
  const DLTensor* states;  // [num_states, tokens, heads, value_dim] f32, f16, bf16
  const DLTensor* lses;    // f32 [num_states, tokens, heads], natural log
  const DLTensor* out;     // [tokens, heads, value_dim]
  // The rest is optional.
  const DLTensor* lse;  // f32 [tokens, heads]; written
} quire_merge_states_args;

QUIRE_C_API quire_status quire_merge_states(const quire_merge_states_args* args,
                                            const quire_context* context);
