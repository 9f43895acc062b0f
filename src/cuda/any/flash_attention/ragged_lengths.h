// SPDX-License-Identifier: Apache-2.0
// Positions of the queries of a ragged batch whose keys are no cache's.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace quire::cuda::any::flash_attention {

struct RaggedLengths {
  const std::uint32_t* row_offsets = nullptr;  // [batch + 1]
  const std::uint32_t* key_offsets = nullptr;  // [batch + 1]
  std::int64_t batch = 0;
  // [batch] keys - queries: where the first query stands. Kernels read it as a signed number: of more queries than keys
  // the first stand before the first key.
  std::uint32_t* lengths = nullptr;
};

void launch_ragged_lengths(const RaggedLengths& params, cudaStream_t stream);

}  // namespace quire::cuda::any::flash_attention
