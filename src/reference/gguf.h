// SPDX-License-Identifier: Apache-2.0
// The block formats of GGUF files: a row of K weights is K / columns blocks of `bytes` bytes.
//
//   q4_0   32 columns,  18 bytes: f16 d | 16 bytes: column i low nibble, i + 16 high nibble
//          w = d · (code - 8)
//   q8_0   32 columns,  34 bytes: f16 d | 32 × i8
//          w = d · code
//   q4_k  256 columns, 144 bytes: f16 d | f16 dmin | 12 bytes: 8 pairs of 6-bit (scale, min)
//                                 | 128 bytes: 32 bytes for two groups, low nibbles first
//          w = d · scale(group of 32) · code - dmin · min(group)
//   q6_k  256 columns, 210 bytes: 128 bytes of low nibbles | 64 bytes of high bit pairs
//                                 | 16 × i8 scale | f16 d
//          w = d · scale(group of 16) · (code - 32)
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "quire/weight.h"

namespace quire::reference {

struct GgufBlock {
  std::int64_t columns;
  std::int64_t bytes;
};

// q4_0, q8_0, q4_k or q6_k.
GgufBlock gguf_block(WeightFormat format);

// The values of one block [columns].
std::vector<double> dequantize_gguf_block(WeightFormat format, const std::uint8_t* block);

}  // namespace quire::reference
