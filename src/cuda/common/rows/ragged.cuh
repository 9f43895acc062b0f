// SPDX-License-Identifier: Apache-2.0
// Which sequence a token of a ragged batch belongs to.
#pragma once

#include <cstdint>

namespace quire::cuda {

// The last sequence that begins at or before `token`; row_offsets u32 [batch + 1] ascends.
__device__ inline int sequence_of(const std::uint32_t* row_offsets, int batch,
                                  std::uint32_t token) {
  int low = 0;
  int high = batch - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (row_offsets[middle] <= token) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace quire::cuda
