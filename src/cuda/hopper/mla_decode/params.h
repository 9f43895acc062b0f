// SPDX-License-Identifier: Apache-2.0
// What the attention kernels of mla_decode receive: plain values, made on the host.
#pragma once

#include "cuda/hopper/flash_attention/decode/params.h"
#include "cuda/hopper/latent_attention/params.h"
#include "cuda/runtime/tensor_map.h"

namespace quire::cuda::hopper {

struct LatentPages {
  const std::byte* rows = nullptr;  // [num_pages, page_size] rows on multiples of 16 bytes
  std::int64_t page_stride_bytes = 0;
  std::int64_t token_stride_bytes = 0;
  const std::uint32_t* table = nullptr;  // [batch, max_pages]
  std::int64_t table_stride = 0;
  int max_pages = 0;
  int page_size = 0;  // a multiple of 16
  unsigned num_pages = 0;
  int box_rows = 0;  // of a page, that one copy of the copy engine brings: a power of two from 16 to 64
};

struct MlaDecodeParams {
  LatentParams attend{};
  DecodeBatch batch{};  // of one KV head
  DecodeSplit split{};  // into clusters
  LatentPages pages{};
  // (column, row of the page, page); boxes of 64 latent columns, and of 32 rope columns, × box_rows
  TensorMap latents{};
  TensorMap tails{};
};

}  // namespace quire::cuda::hopper
