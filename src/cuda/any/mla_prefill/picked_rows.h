// SPDX-License-Identifier: Apache-2.0
// Rows of some sequences of a ragged batch, picked into a dense array and put back.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace quire::cuda::any::mla_prefill {

struct PickedBatch {
  const std::uint32_t* row_offsets = nullptr;  // [batch + 1]
  std::uint32_t* picked_offsets = nullptr;  // [batch + 1]: a sequence that is not picked is empty
  std::int64_t batch = 0;
  std::int64_t max_tokens = 0;  // sequences of more new tokens are not picked
  std::int64_t rows = 0;        // of the dense array, at least as many as can be picked
};

// Rows of [tokens, heads, row_bytes], any strides in bytes.
struct HeadRowsView {
  std::byte* data = nullptr;
  std::int64_t token_bytes = 0;
  std::int64_t head_bytes = 0;
};

struct CopyPickedParams {
  PickedBatch batch;
  HeadRowsView ragged;  // rows of the batch
  HeadRowsView dense;   // picked rows
  std::int64_t heads = 0;
  std::int64_t row_bytes = 0;
  int vector_bytes = 1;  // 16, 4, 2 or 1: divides every address, stride and row_bytes
};

void launch_pick_offsets(const PickedBatch& batch, cudaStream_t stream);
void launch_pick_rows(const CopyPickedParams& params, cudaStream_t stream);
void launch_put_back_rows(const CopyPickedParams& params, cudaStream_t stream);

}  // namespace quire::cuda::any::mla_prefill
