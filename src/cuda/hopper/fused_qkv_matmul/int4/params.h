// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/hopper/fused_qkv_matmul/int4/packed_order.h"
#include "cuda/hopper/fused_qkv_matmul/params.h"

namespace quire::cuda::hopper {

struct Int4Params {
  TensorMap x{};       // [blocks of 64 columns][tokens][64]: boxes of chunk_steps · 2 blocks
  int box_tokens = 0;  // a multiple of 8: rows of the tile past it are never stored
  const std::byte* weight = nullptr;  // in Int4Order
  Int4Order order{};
  DType scale_dtype = DType::bf16;
  // CodeFloat::kExponent. Not a constant in the kernel: a logic instruction with two constants is
  // split into two by the compiler, and these are a third of the decoding.
  std::uint32_t code_exponent = 0;
  bool weight_is_read_once = false;
  QkvOutputs outputs{};
};

}  // namespace quire::cuda::hopper
