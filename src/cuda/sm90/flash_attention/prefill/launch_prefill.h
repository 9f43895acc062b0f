// SPDX-License-Identifier: Apache-2.0
// The border between host code and one compiled kernel: src/cuda/variants.cmake instantiates it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/common/prefill_attention/fp8/transpose_values.h"
#include "cuda/common/prefill_attention/params.h"
#include "cuda/common/rows/divisor.h"

namespace quire::cuda::sm90::flash_attention {

template <typename Variant>
void launch_prefill(const PrefillParams& params, const PagedKeys& keys,
                    const PrefillLaunch& launch);

// Keys of a block, as they are expanded and loaded.
inline constexpr int kDequantizedKeys = 128;

// Rows of e4m3 in pages, 128 columns.
struct BytePages {
  const std::byte* keys = nullptr;      // [num_pages, page_size, kv_heads, 128], rows on 16 bytes
  std::int64_t value_offset_bytes = 0;  // from a key to its value
  std::int64_t page_stride_bytes = 0;
  std::int64_t token_stride_bytes = 0;
  std::int64_t head_stride_bytes = 0;
  const std::uint32_t* table = nullptr;  // [batch, max_pages]
  std::int64_t table_stride = 0;
  int max_pages = 0;
  Divisor page_size{8};  // a multiple of 8
  std::uint32_t num_pages = 0;
};

// What dequantize_role.cuh fills and dequantized_source.cuh reads: blocks of bf16 in the workspace.
struct DequantizedKeys {
  BytePages pages{};
  HeadScales scales{};
  int kv_heads = 0;
  int blocks = 0;             // of a sequence's KV head that there is room for
  std::byte* rows = nullptr;  // [K and V, batch, kv_heads, blocks, 128 keys, 128 columns]
  TensorMap keys{};           // (column, row), boxes of 64 × 128
  TensorMap values{};
  // [K and V, batch, kv_heads, blocks], zero at the start: how far a block is (prefill/dequantized/dequantized_source.cuh).
  std::uint32_t* states = nullptr;
  int side_blocks = 0;  // batch · kv_heads · blocks

  QUIRE_HOST_DEVICE int place(int sequence, int head, int block) const {
    return (sequence * kv_heads + head) * blocks + block;
  }
};

// The border between host code and one compiled kernel: src/cuda/variants.cmake instantiates it.

template <typename Variant>
void launch_dequantizing(const PrefillParams& params, const DequantizedKeys& keys,
                         const PrefillLaunch& launch);

// What a kernel finds of V that is transposed into the workspace, and what it transposes itself.
struct TransposedKeys {
  PagedKeys pages{};   // K, and V as the cache holds it
  TensorMap values{};  // (byte, row): 128 × value_dim of a block, transposed
  int blocks = 0;      // of a sequence, in `values`
  int kv_heads = 0;
  TransposedBefore before{};  // by transpose_values()
  // Zero at the start, of transpose_ahead.cuh: blocks that it has transposed, [batch, KV heads], and taken.
  std::uint32_t* done = nullptr;
  std::uint32_t* taken = nullptr;

  // The first row of a block in `values`.
  QUIRE_HOST_DEVICE int row_of(int sequence, int head, int block) const {
    return ((sequence * blocks + block) * kv_heads + head) * kTransposedColumns;
  }
};

// The border between host code and one compiled kernel: src/cuda/variants.cmake instantiates it.

template <typename Variant>
void launch_fp8(const PrefillParams& params, const TransposedKeys& keys,
                const PrefillLaunch& launch);

// The border between host code and one compiled kernel: src/cuda/variants.cmake instantiates it.

template <typename Variant>
void launch_transposing(const PrefillParams& params, const PagedKeys& keys,
                        const PrefillLaunch& launch);

}  // namespace quire::cuda::sm90::flash_attention
