// SPDX-License-Identifier: Apache-2.0
// The block formats of GGUF files: a row of K weights is K / columns blocks of `bytes` bytes.
//
//   q4_0   32 columns,  18 bytes: f16 d | 16 bytes: column i low nibble, i + 16 high nibble
//          w = d · (code - 8)
//   q4_1   32 columns,  20 bytes: f16 d | f16 m | 16 bytes as in q4_0
//          w = d · code + m
//   q5_0   32 columns,  22 bytes: f16 d | u32: bit i is bit 4 of column i's code | 16 bytes as in q4_0
//          w = d · (code - 16)
//   q5_1   32 columns,  24 bytes: f16 d | f16 m | u32 as in q5_0 | 16 bytes as in q4_0
//          w = d · code + m
//   q8_0   32 columns,  34 bytes: f16 d | 32 × i8
//          w = d · code
//   iq4_nl 32 columns,  18 bytes: f16 d | 16 bytes as in q4_0
//          w = d · table[code], sixteen integers from -127 to 113
//   mxfp4  32 columns,  17 bytes: e8m0 e | 16 bytes as in q4_0
//          w = 2^(e - 127) · the e2m1 number of the code; e = 255 is a power of two too, not NaN
//   q4_k  256 columns, 144 bytes: f16 d | f16 dmin | 12 bytes: 8 pairs of 6-bit (scale, min)
//                                 | 128 bytes: 32 bytes for two groups, low nibbles first
//          w = d · scale(group of 32) · code - dmin · min(group)
//   q5_k  256 columns, 176 bytes: f16 d | f16 dmin | 12 bytes as in q4_k
//                                 | 32 bytes: bit g of byte i is bit 4 of column i of group g
//                                 | 128 bytes as in q4_k
//          w as in q4_k
//   q6_k  256 columns, 210 bytes: 128 bytes of low nibbles | 64 bytes of high bit pairs
//                                 | 16 × i8 scale | f16 d
//          w = d · scale(group of 16) · (code - 32)
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "quire/weight.h"

namespace quire::reference {

// The values of one block [columns]; the format is one of the above.
std::vector<double> dequantize_gguf_block(WeightFormat format, const std::uint8_t* block);

}  // namespace quire::reference
