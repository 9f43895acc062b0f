// SPDX-License-Identifier: Apache-2.0
// Cache rows of any format as pages of 16-bit numbers, made once for all query rows that read them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/common/mask/visible_range.h"
#include "cuda/common/paging/row_reader.h"
#include "cuda/sm90/flash_attention/prefill/launch_prefill.h"
#include "cuda/sm90/flash_attention/prefill/plan_prefill.h"

namespace quire::cuda::sm90::flash_attention {

struct DequantizeParams {
  RowReader keys{};
  RowReader values{};
  int key_width = 0;  // columns that are taken, multiples of 8
  int value_width = 0;
  const std::uint32_t* row_offsets = nullptr;  // [batch + 1]
  VisibleRange mask{};
  int block_keys = 0;  // a block of keys is dequantized whole if a query sees any of it
  int columns = 0;     // of a sequence's page table; longer ones are cut
  DType dtype = DType::bf16;
  std::byte* dequantized_keys = nullptr;    // [batch · columns, KV heads, page_size, key_width]
  std::byte* dequantized_values = nullptr;  // the same of value_width
  // [batch, columns]: where the page of a column stands, 0xffffffff where there is none. Columns of
  // blocks that no query sees are left as they are.
  std::uint32_t* table = nullptr;
};

void dequantize_pages(const DequantizeParams& params, cudaStream_t stream);

// What the kernel of PrefillPath::dequantizing receives of a cache.
DequantizedKeys dequantized_keys(const FlashAttentionArgs& args, const KvLayerView& keys,
                                 const KvLayerView& values, const FlashAttentionProblem& problem,
                                 const PrefillPlan& plan, const PrefillWorkspace& space);

}  // namespace quire::cuda::sm90::flash_attention
