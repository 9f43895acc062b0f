// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/matmul/int4/packed_order.h"
#include "cuda/common/matmul/params.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

struct Int4Params {
  TensorMap x{};                      // [blocks of 64 columns][tokens][64]: boxes of a chunk
  const std::byte* weight = nullptr;  // in Int4Order
  Int4Order order{};
  QkvOutputs outputs{};
  bool overlaps_previous = false;  // as in Context
};

}  // namespace quire::cuda::sm90::fused_qkv_matmul
