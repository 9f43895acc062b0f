// SPDX-License-Identifier: Apache-2.0
// The border between host code and one compiled kernel: src/cuda/variants.cmake instantiates it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/common/prefill_attention/fp8/transpose_values.h"
#include "cuda/common/prefill_attention/params.h"

namespace quire::cuda::sm90::flash_attention {

template <typename Variant>
void launch_prefill(const PrefillParams& params, const PagedKeys& keys,
                    const PrefillLaunch& launch);

// Keys of a block, as they are dequantized and loaded.
inline constexpr int kDequantizedKeys = 128;

// What dequantizing_kernel.cuh fills and dequantized_source.cuh reads: blocks of bf16 in the workspace.
struct DequantizedKeys {
  PagedOperand kv{};  // 128 columns of e4m3, rows on 16 bytes, pages of a multiple of 8 rows
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
  // Zero at the start, of fp8/kernel.cuh: blocks that it has transposed, [batch, KV heads], and taken.
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
