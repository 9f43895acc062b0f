// SPDX-License-Identifier: Apache-2.0
// 2^x and tanh on vectors of f32, for softmax.
#pragma once

#include "cpu/simd/convert.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

inline constexpr double kExactLog2E = 1.4426950408889634;
inline constexpr float kLog2E = 1.4426950408889634f;

// Minimax polynomials of 2^r, relative error below 2e-7 and 2e-9 (8e-8 as evaluated in f32), for r in
// [-1/2, 1/2] or, where the processor splits a number into floor and rest, in [0, 1] with 2^0 = 1. The first of those is
// 2 at 1 as well: the rest of a number just below 0 is rounded to 1, and its power must be 1.
#if defined(__AVX512DQ__)
struct Bf16Exponential {
  static constexpr float kCoefficients[] = {1.0f,          0.693151712f,   0.240159318f,
                                            0.0558186732f, 0.00899099465f, 0.00187931862f};
};
struct F32Exponential {
  static constexpr float kCoefficients[] = {1.0f,           0.693147004f,   0.24022983f,
                                            0.0554833412f,  0.00967884064f, 0.00124396873f,
                                            0.000217022549f};
};
#else
struct Bf16Exponential {
  static constexpr float kCoefficients[] = {1.0f,          0.693147004f,   0.240222424f,
                                            0.0555073358f, 0.00967151299f, 0.00132647273f};
};
struct F32Exponential {
  static constexpr float kCoefficients[] = {1.0f,           0.693147182f,   0.240226462f,
                                            0.0555032864f,  0.00961848907f, 0.00133999309f,
                                            0.000153458124f};
};
#endif

template <typename Element> struct ExponentialFor { using Type = F32Exponential; };
template <> struct ExponentialFor<std::uint16_t> { using Type = Bf16Exponential; };

template <typename Exponential> HWY_INLINE F32Vector polynomial(F32Vector x) {
  const F32Tag f32;
  constexpr auto& kCoefficients = Exponential::kCoefficients;
  constexpr int kDegree = static_cast<int>(sizeof(kCoefficients) / sizeof(float)) - 1;
  F32Vector power = hn::Set(f32, kCoefficients[kDegree]);
  for (int i = kDegree - 1; i >= 0; --i) {
    power = hn::MulAdd(power, x, hn::Set(f32, kCoefficients[i]));
  }
  return power;
}

// 2^x for x ≤ 127; -inf gives 0, NaN stays NaN. Below -126 it is 0 or, where VSCALEF rounds by
// itself, the subnormal number.
#if defined(__AVX512DQ__)
// VREDUCE and VSCALEF take the place of seven instructions around the polynomial.
template <typename Exponential> HWY_INLINE F32Vector exp2_vector(F32Vector x) {
  const F32Vector fraction{_mm512_reduce_ps(x.raw, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
  return F32Vector{_mm512_scalef_ps(polynomial<Exponential>(fraction).raw, x.raw)};
}
#else
template <typename Exponential> HWY_INLINE F32Vector exp2_vector(F32Vector x) {
  const F32Tag f32;
  const U32Tag u32;
  const F32Vector lowest = hn::Set(f32, -126.0f);
  // 1.5 · 2^23 + 127: the sum's low bits are round(x) with the exponent's bias.
  const F32Vector magic = hn::Set(f32, 12583039.0f);
  const auto is_tiny = hn::Lt(x, lowest);
  const F32Vector clamped = hn::IfThenElse(is_tiny, lowest, x);  // not a maximum: NaN must stay
  const F32Vector shifted = hn::Add(clamped, magic);
  const F32Vector fraction = hn::Sub(clamped, hn::Sub(shifted, magic));
  const F32Vector power = polynomial<Exponential>(fraction);
  // A product, exact, and not a sum of exponents: that would turn a NaN with a payload into a number.
  const F32Vector whole = hn::BitCast(f32, hn::ShiftLeft<23>(hn::BitCast(u32, shifted)));
  return hn::IfThenZeroElse(is_tiny, hn::Mul(power, whole));
}
#endif

// Small arguments by an odd polynomial, where 1 - 2 / (e^2x + 1) would cancel.
inline F32Vector tanh_vector(F32Vector x) {
  const F32Tag f32;
  const F32Vector one = hn::Set(f32, 1.0f);
  const F32Vector square = hn::Mul(x, x);
  F32Vector series = hn::Set(f32, -5.70498872745e-3f);
  series = hn::MulAdd(series, square, hn::Set(f32, 2.06390887954e-2f));
  series = hn::MulAdd(series, square, hn::Set(f32, -5.37397155531e-2f));
  series = hn::MulAdd(series, square, hn::Set(f32, 1.33314422036e-1f));
  series = hn::MulAdd(series, square, hn::Set(f32, -3.33332819422e-1f));
  const F32Vector near_zero = hn::MulAdd(hn::Mul(x, square), series, x);
  const F32Vector absolute = hn::Abs(x);
  const F32Vector largest = hn::Set(f32, 20.0f);
  // Not a minimum: NaN must stay.
  const F32Vector magnitude = hn::IfThenElse(hn::Gt(absolute, largest), largest, absolute);
  const F32Vector power =
      exp2_vector<F32Exponential>(hn::Mul(magnitude, hn::Set(f32, 2.0f * kLog2E)));
  const F32Vector quotient = hn::Div(hn::Set(f32, 2.0f), hn::Add(power, one));
  const F32Vector far = hn::CopySign(hn::Sub(one, quotient), x);
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(f32, 0.625f)), near_zero, far);
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
