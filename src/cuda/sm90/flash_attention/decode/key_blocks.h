// SPDX-License-Identifier: Apache-2.0
// Lists of blocks as page tables: a kernel in front of the decode kernel writes, for every token and KV head, the pages of
// the blocks of its list and how many keys they hold. The decode kernel then attends a batch of these pairs
// (ListedHeads), and walks their pages as it walks those of sequences.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/common/runtime/carver.h"
#include "quire/kv_layer_view.h"
#include "quire/ops/flash_attention.h"

namespace quire::cuda::sm90::flash_attention {

// What the kernel in front writes.
struct ListedKeys {
  std::uint32_t* row_offsets =
      nullptr;  // [lists + 1]: a token each, none of tokens past the batch's last
  std::uint32_t* lengths = nullptr;  // [lists]: keys
  std::uint32_t* pages = nullptr;    // [lists, columns]
  std::int64_t lists = 0;            // tokens × KV heads
  std::int64_t columns = 0;          // pages of a list at most

  static ListedKeys carve(Carver& carver, const FlashAttentionProblem& problem);
  // K or V of the batch of pairs. The view is still of all KV heads.
  KvLayerView in(const KvLayerView& view) const;
};

void launch_list_pages(const FlashAttentionArgs& args, const KvLayerView& keys,
                       const ListedKeys& listed, cudaStream_t stream);

}  // namespace quire::cuda::sm90::flash_attention
