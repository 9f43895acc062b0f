// SPDX-License-Identifier: Apache-2.0
// The paged KV cache of all layers: views of the page pool, the page table and the lengths. Quire owns none of it.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "quire/c/dlpack.h"

// Dtypes, where no tensor says them.
enum {
  QUIRE_DTYPE_DEFAULT = 0,
  QUIRE_DTYPE_F32 = 1,
  QUIRE_DTYPE_F16 = 2,
  QUIRE_DTYPE_BF16 = 3,
  QUIRE_DTYPE_FP8_E4M3 = 4,
  QUIRE_DTYPE_FP8_E5M2 = 5,
  QUIRE_DTYPE_I8 = 6,
  QUIRE_DTYPE_I4 = 7,
  QUIRE_DTYPE_U4 = 8,
  QUIRE_DTYPE_U8 = 9,
  QUIRE_DTYPE_I32 = 10,
  QUIRE_DTYPE_U32 = 11,
  QUIRE_DTYPE_I64 = 12,
  QUIRE_DTYPE_E8M0 = 13,  // powers of two, 2^(code - 127): for scales
};

enum {
  QUIRE_SCALE_SOURCE_NONE = 0,    // the stored number is the value
  QUIRE_SCALE_SOURCE_IN_ROW = 1,  // scales stand in the row itself, at scale_offset_bytes
  QUIRE_SCALE_SOURCE_PLANE = 2,   // scales stand in the cache's scales tensor
};

// Columns of one dtype in a cache row. Columns of QUIRE_DTYPE_U4 have their scales in the row, each with a zero behind it
// that is the value of code 0.
typedef struct quire_row_part {
  size_t struct_size;
  int32_t dtype;         // QUIRE_DTYPE_*, not 0
  int32_t width;         // columns
  int32_t offset_bytes;  // from the start of the row
  int32_t scale_source;  // QUIRE_SCALE_SOURCE_*
  int32_t
      granularity;  // columns that share a scale; in the row: from the part's start, plane: from column 0
  int32_t scale_offset_bytes;  // in the row only
  int32_t scale_dtype;         // QUIRE_DTYPE_*; 0: f32
  int32_t reserved;            // 0
} quire_row_part;

// What one row (one token, one head) is in bytes. DeepSeek's rows of 656 bytes: 512 × e4m3 with a scale for 128 columns
// in the row at 512, then 64 × bf16 at 528.
typedef struct quire_row_format {
  size_t struct_size;
  const quire_row_part* parts;  // [num_parts], all of one struct_size
  int32_t num_parts;            // 1 to 4
  int32_t row_bytes;
} quire_row_format;

enum {
  QUIRE_SCALES_BY_STRIDES = 0,  // static where one scale serves several pages or tokens
  QUIRE_SCALES_STATIC = 1,      // calibrated: ops read them and never write them
  QUIRE_SCALES_DYNAMIC = 2,     // written with the rows
};

// An entry of the table equal to num_pages, or 0xFFFFFFFF, means "no page". Tables and lengths may be i32 as well.
typedef struct quire_cache {
  size_t struct_size;
  const DLTensor*
      blocks;  // [num_pages, kv, num_layers, page_size, num_kv_heads, row]; kv = 2, MLA: 1
  // Both of the next may be NULL where an op takes slots instead of them (quire_store).
  const DLTensor*
      cache_lengths;           // u32 [batch]: tokens cached before this call; ops never change it
  const DLTensor* page_table;  // u32 [batch, max_pages]
  // The rest is optional.
  const DLTensor*
      scales;  // [num_scale_pages, kv, num_layers, page_size, num_kv_heads, slots], any strides
  const DLTensor* scales_page_table;  // NULL: scales use page_table
  const quire_row_format*
      row_format;  // NULL: uniform, or scaled where scales are given; otherwise blocks are u8
  int32_t static_scales;    // QUIRE_SCALES_*
  int32_t blocks_dtype;     // QUIRE_DTYPE_* of 8 bits that blocks of u8 hold; 0: as the tensor says
  uint32_t max_seq_length;  // upper bounds for grids and workspace, 0: none given
  uint32_t max_cache_length;
  const DLTensor*
      value_blocks;  // V as a tensor of its own [num_pages, 1, num_layers, page_size, num_kv_heads, value row]; blocks: kv = 1
} quire_cache;
