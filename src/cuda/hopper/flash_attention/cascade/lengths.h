// SPDX-License-Identifier: Apache-2.0
// The lengths of the two parts of a cascade, from those of the batch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace quire::cuda::hopper {

struct CascadeLengths {
  const std::uint32_t* row_offsets = nullptr;    // [batch + 1]
  const std::uint32_t* cache_lengths = nullptr;  // [batch]
  std::int64_t batch = 0;
  std::uint32_t prefix_keys = 0;
  // All tokens as one sequence: its offsets, and what it has cached before the shared keys end.
  std::uint32_t* prefix_offsets = nullptr;  // [2]
  std::uint32_t* prefix_length = nullptr;   // [1]
  std::uint32_t* own_lengths = nullptr;     // [batch]: without the shared keys
};

void launch_cascade_lengths(const CascadeLengths& lengths, cudaStream_t stream);

}  // namespace quire::cuda::hopper
