// SPDX-License-Identifier: Apache-2.0
// f32 numbers that round a second time without harm: rounded to odd, an inexact one takes, of its two f32
// neighbours, the one with an odd significand. No middle between two numbers of at most 22 bits is odd,
// hence rounding the result is rounding the exact value.
#pragma once

#include "cpu/simd/rows_lanes.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// rest has the sign of (exact value − value), or is 0, or NaN where value is final already.
inline F32Vector to_odd(F32Vector value, F32Vector rest) {
  const F32Tag f32;
  const hn::RebindToSigned<F32Tag> i32;
  const auto bits = hn::BitCast(i32, value);
  // Towards zero first: one below where the rest points that way, then the odd one of the two.
  const auto step_down = hn::ShiftRight<31>(hn::Xor(bits, hn::BitCast(i32, rest)));
  // Without a sign: below the zeros the sum wraps round, and is not taken.
  const U32Tag u32;
  const auto stepped = hn::Add(hn::BitCast(u32, bits), hn::BitCast(u32, step_down));
  const auto odd = hn::Or(stepped, hn::Set(u32, 1u));
  const auto is_inexact = hn::Gt(hn::Abs(rest), hn::Zero(f32));
  return hn::IfThenElse(is_inexact, hn::BitCast(f32, odd), value);
}

inline F32Vector demote_to_odd(F64Vector lower, F64Vector upper) {
  const F64Tag f64;
  const F32HalfTag half;
  const auto sign_of_rest = [&](F64Vector value, auto rounded) {
    const F64Vector rest = hn::Sub(value, hn::PromoteTo(f64, rounded));
    const auto is_inexact = hn::Gt(hn::Abs(rest), hn::Zero(f64));
    // As ±1: the rest itself may be too small for f32.
    return hn::DemoteTo(half,
                        hn::IfThenElseZero(is_inexact, hn::CopySign(hn::Set(f64, 1.0), rest)));
  };
  const auto low = hn::DemoteTo(half, lower);
  const auto high = hn::DemoteTo(half, upper);
  const F32Tag f32;
  return to_odd(hn::Combine(f32, high, low),
                hn::Combine(f32, sign_of_rest(upper, high), sign_of_rest(lower, low)));
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
