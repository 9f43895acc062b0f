// SPDX-License-Identifier: Apache-2.0
// The scales of a key's row, divided between operands and scores.
//
// A row is (columns of its operand) · 2^exponent · mantissa. One scale per row stays outside of the
// products altogether: nothing is rounded. Scales of 128 columns each have to enter them; they are
// brought to the top of f16's range first, by a power of two that all four share, so that a product
// keeps 11 bits.
#pragma once

#include <cstdint>

#include "cuda/common/softmax/softmax.cuh"
#include "cuda/sm90/sparse_mla/fp8/operands.cuh"

namespace quire::cuda::sm90::sparse_mla {

// The bits of exponents, between those that a row's may have.
struct ScaleBits {
  // e4m3 reaches 448: scales below 2^7 keep the products finite.
  static constexpr int kRaise = 6;
  // Scales below 2^-60 count as that: a key of no length still has its share of the weights, which
  // must not vanish beside those of keys with scales of any size.
  static constexpr int kLeast = 127 - 60;

  __device__ static int of(float x) { return __float_as_int(x) >> 23 & 0xff; }
  __device__ static int of(const float4& x) {
    return max(max(of(x.x), of(x.y)), max(of(x.z), of(x.w)));
  }
  __device__ static int clamp(int bits, int most) { return min(max(bits, kLeast), most); }
  __device__ static float power_of_two(int bits) { return __int_as_float(bits << 23); }
};

// What a row's operands are multiplied by: f16 for the latent columns, bf16 for the rope columns, twice
// in a word.
struct OperandFactors {
  static constexpr std::uint32_t kOneHalves = 0x3c003c00;
  static constexpr std::uint32_t kOneBfloats = 0x3f803f80;

  std::uint32_t groups[Fp8Config::kGroups] = {kOneHalves, kOneHalves, kOneHalves, kOneHalves};
  std::uint32_t rope = kOneBfloats;

  // Four scales of 128 columns each; the rope columns have none.
  __device__ void take(const float4& scales) {
    const int bits = 254 + ScaleBits::kRaise - ScaleBits::clamp(ScaleBits::of(scales), 254);
    const float unit = ScaleBits::power_of_two(bits);
    rope = static_cast<std::uint32_t>(bits) * 0x00800080U;
    groups[0] = twice(scales.x * unit);
    groups[1] = twice(scales.y * unit);
    groups[2] = twice(scales.z * unit);
    groups[3] = twice(scales.w * unit);
  }

 private:
  __device__ static std::uint32_t twice(float x) { return pack_pair<DType::f16>(x, x); }
};

struct KeyFactors {
  float score = 1.0F;     // of the score: 2^exponent · mantissa
  float exponent = 0.0F;  // of two
  float unit = 1.0F;      // 2^-exponent
  float mantissa = 1.0F;

  // One scale of the whole row.
  __device__ void take(float scale) {
    const int bits = ScaleBits::clamp(ScaleBits::of(scale), 253);
    unit = ScaleBits::power_of_two(254 - bits);
    exponent = static_cast<float>(bits - 127);
    mantissa = scale * unit;
    score = scale;
  }
  __device__ void take(const float4& scales) {
    const int bits = ScaleBits::clamp(ScaleBits::of(scales), 254) - ScaleBits::kRaise;
    unit = ScaleBits::power_of_two(254 - bits);
    exponent = static_cast<float>(bits - 127);
    score = ScaleBits::power_of_two(bits);
  }
};

}  // namespace quire::cuda::sm90::sparse_mla
