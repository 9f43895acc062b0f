// SPDX-License-Identifier: Apache-2.0
// The bits around a code that make it a number: two codes at bits 3 – 6 of both halves of a word,
// below exponents at which a mantissa counts in eighths (bf16: 16 + code, f16: 128 + code).
#pragma once

#include <cstdint>

#include "quire/dtype.h"

namespace quire::cuda::hopper {

inline constexpr std::uint32_t kCodeBits = 0x00780078;

constexpr std::uint32_t code_exponent(DType x_dtype) {
  return x_dtype == DType::f16 ? 0x58005800 : 0x41804180;
}

}  // namespace quire::cuda::hopper
