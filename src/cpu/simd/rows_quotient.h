// SPDX-License-Identifier: Apache-2.0
// Quotients that round a second time without harm.
//
// A quantizer stores x / scale rounded once, to 8 or 16 bits. The f32 quotient is a rounding
// already: where it falls on the middle between two codes, the exact quotient may lie to either
// side. So quotients here are rounded to odd. The reference divides in double; a quotient of two f32
// numbers is never within 2^-53 of such a middle without being on it, so both agree bit for bit.
#pragma once

#include "cpu/simd/round_to_odd.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// x / scale through f64 lanes: any scale but 0, results down to f32's subnormals.
class WideQuotient {
 public:
  explicit WideQuotient(float scale) : scale_(hn::Set(F64Tag(), static_cast<double>(scale))) {}
  F32Vector operator()(F32Vector x) const {
    return demote_to_odd(hn::Div(lower_as_f64(x), scale_), hn::Div(upper_as_f64(x), scale_));
  }

 private:
  F64Vector scale_;
};

// x / scale with the remainder of the f32 quotient as rest, exact in one fused multiply-add. The
// remainder is a multiple of ulp(x / scale) · ulp(scale), which must not be below 2^-149: quotients
// of 2^-18 and more, all that 8-bit codes can tell from 0, allow scales from 2^-85 on.
class FusedQuotient {
 public:
  static bool takes(float scale) { return HWY_NATIVE_FMA != 0 && scale >= 0x1p-85f; }

  explicit FusedQuotient(float scale) : scale_(hn::Set(F32Tag(), scale)) {}
  F32Vector operator()(F32Vector x) const {
    const F32Vector quotient = hn::Div(x, scale_);
    return to_odd(quotient, hn::NegMulAdd(quotient, scale_, x));
  }

 private:
  F32Vector scale_;
};

// x / scale in f32, for f32 results.
class PlainQuotient {
 public:
  explicit PlainQuotient(float scale) : scale_(hn::Set(F32Tag(), scale)) {}
  F32Vector operator()(F32Vector x) const { return hn::Div(x, scale_); }

 private:
  F32Vector scale_;
};

// What a scale of 0 makes of numbers: 0. NaN stays.
struct ZeroQuotient {
  F32Vector operator()(F32Vector x) const { return hn::IfThenElseZero(hn::IsNaN(x), x); }
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
