// SPDX-License-Identifier: Apache-2.0
// What the choice of an int4 kernel depends on.
#pragma once

#include <cstdint>

#include "quire/dtype.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

struct Int4Shape {
  std::int64_t tokens = 0;
  std::int64_t columns = 0;  // of Y
  DType dtype = DType::bf16;
  int steps = 1;  // of 128 columns of x
};

}  // namespace quire::cuda::sm90::fused_qkv_matmul
