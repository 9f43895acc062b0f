// SPDX-License-Identifier: Apache-2.0
// Bf16Engine: the bf16 matrix engine of the target (contract: cpu/simd/tile.h).
//
// AMX, VDPBF16PS and BFMMLA treat bf16 subnormals, and sums below 2^-126, as zero; the widening
// engine keeps them.
#pragma once

#if defined(__AMX_BF16__)
#include "cpu/simd/tile_bf16_amx.h"
#elif defined(__AVX512BF16__)
#include "cpu/simd/tile_bf16_avx512.h"
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#include "cpu/simd/tile_bf16_neon.h"
#else
#include "cpu/simd/tile_bf16_widening.h"
#endif

namespace quire::cpu::QUIRE_CPU_TARGET {

#if defined(__AMX_BF16__)
using Bf16Engine = AmxBf16;
inline constexpr bool kWidensBf16 = false;
#elif defined(__AVX512BF16__)
using Bf16Engine = Avx512Bf16;
inline constexpr bool kWidensBf16 = false;
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
using Bf16Engine = NeonBf16;
inline constexpr bool kWidensBf16 = false;
#else
using Bf16Engine = WideningBf16;
inline constexpr bool kWidensBf16 = true;
#endif

}  // namespace quire::cpu::QUIRE_CPU_TARGET
