// SPDX-License-Identifier: Apache-2.0
// V of e4m3, transposed once for all query rows that read it: products of e4m3 want neighbouring
// keys in neighbouring bytes. All of it, or the part that tiles come to first (sm90/flash_attention/prefill/fp8/kernel.cuh).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/common/mask/visible_range.h"
#include "quire/host_device.h"
#include "quire/kv_layer_view.h"

namespace quire::cuda {

inline constexpr int kTransposedKeys = 128;     // of a block
inline constexpr int kTransposedColumns = 128;  // of V

// Which key of 16 stands in which byte: the pairs that a thread has of a product's row, 2c and
// 2c + 1 of every 8 keys, are neighbours (attend_fp8.cuh).
QUIRE_HOST_DEVICE constexpr int key_at_place(int place) {
  const int thread = place / 4;
  const int within = place % 4;
  return 8 * (within / 2) + 2 * thread + within % 2;
}

// Of which sequences and KV heads: the first of both.
struct TransposedBefore {
  int sequences = 0;
  int heads = 0;

  QUIRE_HOST_DEVICE bool has(int sequence, int head) const {
    return sequence < sequences && head < heads;
  }
};

struct TransposeParams {
  KvLayerView values{};                        // e4m3, rows on multiples of 16 bytes
  const std::uint32_t* row_offsets = nullptr;  // [batch + 1]
  VisibleRange mask{};
  std::byte* transposed = nullptr;  // [batch, blocks, KV heads, 128 columns, 128 keys]
  int blocks = 0;                   // of a sequence; longer ones are cut
  TransposedBefore part{};          // that is transposed here
};

// Blocks that no query sees are left as they are; keys that are not there become zeros.
void transpose_values(const TransposeParams& params, cudaStream_t stream);

}  // namespace quire::cuda
