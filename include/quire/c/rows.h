// SPDX-License-Identifier: Apache-2.0
// The ops that work on rows: rope, norms, stores, page copies, fp8 quantization, lengths. The headers of these names in
// quire/ops have the formulas.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "quire/c/cache.h"
#include "quire/c/context.h"
#include "quire/c/dlpack.h"
#include "quire/c/export.h"
#include "quire/c/status.h"

typedef struct quire_rope_args {
  size_t struct_size;
  const DLTensor* q;            // [tokens, heads, head_dim] f32, f16, bf16
  const DLTensor* row_offsets;  // u32 [batch + 1]
  const quire_cache* cache;     // its new keys are rotated in place
  int64_t layer;
  const DLTensor* freqs_cis;  // [max_pos, rope_dim] cos, sin interleaved
  const DLTensor* out;        // [tokens, heads, head_dim]; may be q itself
  // The rest is optional.
  const DLTensor*
      position_ids;  // u32 [sections, tokens]: rows of freqs_cis instead of the cache positions
  const int64_t* mrope_sections;  // [num_mrope_sections]: pairs of each section
  int64_t num_mrope_sections;
  const DLTensor* q_gamma;    // [columns <= head_dim]; NULL: no norm
  const DLTensor* key_gamma;  // the same for the keys
  double epsilon;             // 0: 1e-6
  double weight_offset;
  int32_t interleaved;  // 0: pairs (j, j + rope_dim/2), 1: (2j, 2j + 1)
  int32_t q_only;       // 1: the keys are left alone
  int32_t inverse;      // 1: a rotation is taken back
  int32_t reserved;     // 0
} quire_rope_args;

QUIRE_C_API quire_status quire_rope(const quire_rope_args* args, const quire_context* context);

typedef struct quire_rms_norm_args {
  size_t struct_size;
  const quire_cache* cache;  // unscaled rows
  int64_t layer;
  const DLTensor* row_offsets;  // u32 [batch + 1]
  const DLTensor* gamma;        // [columns <= head_dim], whole_token: [heads * head_dim]
  // The rest is optional.
  double epsilon;  // 0: 1e-6
  double weight_offset;
  int32_t whole_token;  // 0: per head, 1: over all heads of a token
  int32_t
      cast_before_multiply;  // 1: the normalised value is rounded to gamma's dtype before gamma multiplies it
} quire_rms_norm_args;

QUIRE_C_API quire_status quire_rms_norm_key(const quire_rms_norm_args* args,
                                            const quire_context* context);
QUIRE_C_API quire_status quire_rms_norm_value(const quire_rms_norm_args* args,
                                              const quire_context* context);

enum { QUIRE_SIDE_KEY = 0, QUIRE_SIDE_VALUE = 1 };

typedef struct quire_store_args {
  size_t struct_size;
  const DLTensor* x;  // [tokens, kv_heads, head_dim] f32, f16, bf16, or the cache's own dtype
  const DLTensor* row_offsets;  // u32 [batch + 1]; NULL: by slots
  const quire_cache* cache;
  int64_t layer;
  // The rest is optional.
  int32_t side;      // QUIRE_SIDE_* of x
  int32_t reserved;  // 0
  const DLTensor*
      value;  // given: x goes to the keys and this, of x's dtype and shape, to the values
  // i64 or i32 [tokens]: page * page_size + row of the page, negative to skip a token. No lengths and no page table are
  // read, and those of the cache may be NULL.
  const DLTensor* slots;
} quire_store_args;

QUIRE_C_API quire_status quire_store(const quire_store_args* args, const quire_context* context);

typedef struct quire_store_scales_args {
  size_t struct_size;
  const DLTensor* scales;       // f32, f16, bf16 [tokens, kv_heads, slots]
  const DLTensor* row_offsets;  // u32 [batch + 1]
  const quire_cache* cache;     // with scales
  int64_t layer;
  // The rest is optional.
  int32_t side;      // QUIRE_SIDE_*
  int32_t reserved;  // 0
} quire_store_scales_args;

QUIRE_C_API quire_status quire_store_scales(const quire_store_scales_args* args,
                                            const quire_context* context);

typedef struct quire_copy_pages_args {
  size_t struct_size;
  const quire_cache* cache;  // without scales_page_table
  const DLTensor* pairs;     // u32 [count, 2]: source, target
} quire_copy_pages_args;

QUIRE_C_API quire_status quire_copy_pages(const quire_copy_pages_args* args,
                                          const quire_context* context);

enum {
  QUIRE_SCALE_ROUNDING_DEFAULT = 0,  // the op's own
  QUIRE_SCALE_ROUNDING_EXACT = 1,
  QUIRE_SCALE_ROUNDING_POWER_OF_TWO = 2,  // rounded up
};

typedef struct quire_quantize_fp8_args {
  size_t struct_size;
  const DLTensor* x;      // [rows, columns] f32, f16, bf16
  const DLTensor* out;    // fp8 [rows, columns]
  const DLTensor* scale;  // f32 [rows, ceil(columns / group)], any strides; written
  // The rest is optional.
  int64_t group_size;        // columns that share a scale; 0: the whole row
  double scale_upper_bound;  // 0: none
  int32_t scale_rounding;    // QUIRE_SCALE_ROUNDING_*; 0: exact
  int32_t reserved;          // 0
} quire_quantize_fp8_args;

QUIRE_C_API quire_status quire_quantize_fp8(const quire_quantize_fp8_args* args,
                                            const quire_context* context);

typedef struct quire_row_offsets_args {
  size_t struct_size;
  const DLTensor* row_offsets;    // u32 [batch + 1], of the new tokens
  const DLTensor* cache_lengths;  // u32 [batch]
  const DLTensor* out;            // u32 [batch + 1]
} quire_row_offsets_args;

QUIRE_C_API quire_status quire_row_offsets(const quire_row_offsets_args* args,
                                           const quire_context* context);
