// SPDX-License-Identifier: Apache-2.0
// What the two parts of a cascade are called with, from the tensors of the batch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/common/paging/operand.h"

namespace quire::cuda::sm90::flash_attention {

// The shared pages as the table of one sequence.
struct PrefixTable {
  PageTable table{};
  std::uint32_t* pages = nullptr;  // [prefix_pages]; null: there are none
};

struct BatchSplit {
  const std::uint32_t* row_offsets = nullptr;    // [batch + 1]
  const std::uint32_t* cache_lengths = nullptr;  // [batch]
  std::int64_t batch = 0;
  std::int64_t prefix_pages = 0;
  std::uint32_t prefix_keys = 0;
  // All tokens as one sequence: its offsets, and what it has cached before the shared keys end.
  std::uint32_t* prefix_offsets = nullptr;  // [2]
  std::uint32_t* prefix_length = nullptr;   // [1]
  PrefixTable keys;
  PrefixTable scales;
  std::uint32_t* own_lengths = nullptr;  // [batch]: without the shared keys
};

void launch_split_batch(const BatchSplit& split, cudaStream_t stream);

}  // namespace quire::cuda::sm90::flash_attention
