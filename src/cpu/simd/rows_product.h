// SPDX-License-Identifier: Apache-2.0
// Stored numbers times their scale. A product of f32 numbers has more bits than f32: where it is to be
// rounded to 16 bits, a rounding to f32 before that one may bring it to the middle between two numbers.
// The largest number of a granule often lies next to one: its scale is its own 448th part.
#pragma once

#include "cpu/simd/round_to_odd.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// To nearest, for f32 results.
class NearestProduct {
 public:
  explicit NearestProduct(float scale) : scale_(hn::Set(F32Tag(), scale)) {}
  F32Vector operator()(F32Vector x) const { return hn::Mul(x, scale_); }

 private:
  F32Vector scale_;
};

// To odd, with the remainder from one fused multiply-add. It must not be below 2^-149: numbers of
// 2^-24 and more allow scales from 2^-77 on.
class FusedProduct {
 public:
  static bool takes(float scale) { return HWY_NATIVE_FMA != 0 && scale >= 0x1p-77f; }

  explicit FusedProduct(float scale) : scale_(hn::Set(F32Tag(), scale)) {}
  F32Vector operator()(F32Vector x) const {
    const F32Vector product = hn::Mul(x, scale_);
    return to_odd(product, hn::MulSub(x, scale_, product));
  }

 private:
  F32Vector scale_;
};

// To odd through f64 lanes, where every product of two f32 numbers is exact.
class WideProduct {
 public:
  explicit WideProduct(float scale) : scale_(hn::Set(F64Tag(), static_cast<double>(scale))) {}
  F32Vector operator()(F32Vector x) const {
    return demote_to_odd(hn::Mul(lower_as_f64(x), scale_), hn::Mul(upper_as_f64(x), scale_));
  }

 private:
  F64Vector scale_;
};

// Of codes that have a zero besides: code · scale + zero.
class ShiftedProduct {
 public:
  ShiftedProduct(float scale, float zero)
      : scale_(hn::Set(F32Tag(), scale)), zero_(hn::Set(F32Tag(), zero)) {}
  F32Vector operator()(F32Vector x) const { return hn::MulAdd(x, scale_, zero_); }

 private:
  F32Vector scale_;
  F32Vector zero_;
};

// The same to odd. Products of codes of 4 bits are exact in f64, and their sums as good as that.
class WideShiftedProduct {
 public:
  WideShiftedProduct(float scale, float zero)
      : scale_(hn::Set(F64Tag(), static_cast<double>(scale))),
        zero_(hn::Set(F64Tag(), static_cast<double>(zero))) {}
  F32Vector operator()(F32Vector x) const {
    return demote_to_odd(hn::MulAdd(lower_as_f64(x), scale_, zero_),
                         hn::MulAdd(upper_as_f64(x), scale_, zero_));
  }

 private:
  F64Vector scale_;
  F64Vector zero_;
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
