// SPDX-License-Identifier: Apache-2.0
// Rows of a paged cache in bf16, in pages of their own: for kernels that read a row many times and would decode it each
// time. What comes out is a view like any other, with its own page table; a page that nobody has stays nobody's.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/common/runtime/carver.h"
#include "quire/kv_layer_view.h"

namespace quire::cuda {

struct DecodedShape {
  std::int64_t batch = 0;
  std::int64_t columns = 0;  // pages of a sequence, as many as its longest has
  std::int32_t page_size = 0;
  std::int32_t width = 0;           // of a row, a multiple of 8
  std::int64_t tokens_per_row = 1;  // lengths of sequences count tokens

  std::int64_t pages() const { return batch * columns; }
  std::int64_t rows() const { return pages() * page_size; }
  std::int64_t bytes() const { return rows() * width * 2; }
};

struct DecodedPages {
  DecodedShape shape;
  std::byte* rows = nullptr;     // bf16 [batch · columns, page_size, width]
  std::uint32_t* ids = nullptr;  // [batch, columns]

  static DecodedPages carve(Carver& carver, const DecodedShape& shape);
  // The decoded rows in the place of `coded` ones.
  KvLayerView view_of(const KvLayerView& coded) const;
};

// All rows of all sequences: of cached tokens and the new ones of row_offsets u32 [batch + 1].
void launch_decode_pages(const KvLayerView& coded, const std::uint32_t* row_offsets,
                         const DecodedPages& decoded, cudaStream_t stream);

}  // namespace quire::cuda
