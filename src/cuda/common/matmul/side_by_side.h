// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace quire::cuda {

// Whether the scales of four blocks of K in a row, [rows, blocks], may be loaded as 16 bytes from every
// fourth block on.
inline bool stand_side_by_side(const float* scales, std::int64_t row_stride,
                               std::int64_t block_stride, std::int64_t blocks) {
  return reinterpret_cast<std::uintptr_t>(scales) % 16 == 0 && row_stride % 4 == 0 &&
         block_stride == 1 && blocks % 4 == 0;
}

}  // namespace quire::cuda
