// SPDX-License-Identifier: Apache-2.0
// What the attention kernels of mla_decode receive: plain values, made on the host.
#pragma once

#include "cuda/common/rows/divisor.h"
#include "cuda/common/runtime/tensor_map.h"
#include "cuda/common/split_kv/params.h"
#include "cuda/sm90/mla_decode/latent/params.h"

namespace quire::cuda::sm90::mla_decode {

struct LatentPages {
  const std::byte* rows = nullptr;  // [num_pages, page_size] rows on multiples of 16 bytes
  std::int64_t page_stride_bytes = 0;
  std::int64_t token_stride_bytes = 0;
  const std::uint32_t* table = nullptr;  // [batch, max_pages]
  std::int64_t table_stride = 0;
  int max_pages = 0;
  int page_size = 0;  // a multiple of 16
  Divisor by_page_size{1};
  int row_bytes = 0;
  unsigned num_pages = 0;
  // Rows of a page that one copy of the copy engine brings, and what power of two they are: 16 to 64
  int box_rows = 0;
  int box_bits = 0;
};

// Rows of e4m3: 512 latent columns from byte 0 on.
struct LatentRowFormat {
  int rope_offset_bytes = 0;
  bool has_fp8_rope = false;         // otherwise bf16
  int row_scales_offset_bytes = -1;  // f32 [4], one for 128 latent columns; -1: none
  // f32, one for a row, in the scales' own pages; null: none
  const float* token_scales = nullptr;
  std::int64_t scale_page_stride = 0;  // elements
  std::int64_t scale_token_stride = 0;
  unsigned scale_pages = 0;
  const std::uint32_t* scale_table = nullptr;  // [batch, max_pages]
  std::int64_t scale_table_stride = 0;
};

struct MlaDecodeParams {
  LatentParams attend{};
  DecodeBatch batch{};  // of one KV head
  DecodeSplit split{};  // into clusters
  LatentPages pages{};
  LatentRowFormat format{};  // of rows to be converted
  // bf16 rows: (column of the swizzle column, row of the page, swizzle column, page), two swizzle columns at a time in `latents`, where a
  // box has a tile's 64 rows, and one in `tails`. For few query rows, and for rows of e4m3: whole rows × 16 in `latents`,
  // but in swizzle columns rope columns of e4m3 in `tails`.
  TensorMap latents{};
  TensorMap tails{};
};

}  // namespace quire::cuda::sm90::mla_decode
