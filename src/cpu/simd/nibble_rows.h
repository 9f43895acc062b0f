// SPDX-License-Identifier: Apache-2.0
// NibbleRows: a few rows of X times packed 4-bit weights whose numbers are multiplied as soon as they are decoded, with
// the bits of the target's bf16 engine.
#pragma once

#include "cpu/simd/tile_bf16.h"

#if defined(__AMX_BF16__)
#include "cpu/simd/nibble_rows_amx.h"
#elif defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#include "cpu/fused_qkv_matmul/job.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// VDPBF16PS and BFMMLA take panels that were decoded before.
struct NibbleRows {
  static bool takes(const MatmulJob&) { return false; }
  static std::int64_t x_elements(const MatmulJob&) { return 0; }
  NibbleRows(const MatmulJob&, float*, const float*, std::int64_t) {}
  void load_x(const std::uint16_t*) {}
  void multiply(std::int64_t, std::int64_t, float*, std::int64_t) const {}
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
#else
#include "cpu/simd/nibble_rows_widening.h"
#endif
