// SPDX-License-Identifier: Apache-2.0
// Codes of x / scale, of 8 bits or 4, without a division. The exact quotient lies between x · low and
// x · high, the reciprocal of the scale a little too small and a little too large. Rounding keeps
// order: where both ends round to one code, that is the code of the quotient. Where they do not, a
// middle between two codes is near, and the caller takes a quotient of rows_quotient.h for those
// lanes. A power of two has an exact reciprocal and no such lanes.
#pragma once

#include "cpu/simd/rows_lanes.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

struct ReciprocalBracket {
  F32Vector low;
  F32Vector high;
  F32Vector middle;

  // Reciprocals, and products with them that matter here, are normal numbers.
  static bool takes(float scale) { return scale >= 0x1p-100f && scale <= 0x1p100f; }

  explicit ReciprocalBracket(float scale) {
    const F32Tag f32;
    const float reciprocal = 1.0f / scale;
    std::uint32_t word;
    __builtin_memcpy(&word, &scale, sizeof(word));
    // Roundings of the reciprocal, of an end and of a product together stay below 2^-22.
    const float margin = (word & 0x7fffffu) == 0 ? 0.0f : 0x1p-21f;
    middle = hn::Set(f32, reciprocal);
    low = hn::Set(f32, reciprocal * (1.0f - margin));
    high = hn::Set(f32, reciprocal * (1.0f + margin));
  }
};

// Sign and magnitude. A magnitude in [2^e, 2^(e+1)) is rounded to its code's bits by the sum with
// 2^(e + shift): what the sum is above that power, in its last place, is hidden bit and mantissa.
// Adding the exponent field gives the code, and the same holds below the smallest normal number,
// whose e serves all subnormals.
template <SmallFloat kFormat> class Fp8Codes {
 public:
  explicit Fp8Codes(float scale)
      : reciprocal_(scale), limit_(hn::Set(F32Tag(), scale * kLargest)) {}

  // False if some lane's code is not certain.
  bool encode(F32Vector x, U32Vector& codes) const {
    const F32Tag f32;
    const U32Tag u32;
    const F32Vector given = hn::Abs(x);
    // Not Min: NaN must stay, which is then unequal to itself below.
    const F32Vector magnitude = hn::IfThenElse(hn::Gt(given, limit_), limit_, given);
    const U32Vector quotient = hn::BitCast(u32, hn::Mul(magnitude, reciprocal_.middle));
    const U32Vector exponent =
        hn::Max(hn::And(quotient, hn::Set(u32, 0x7f800000u)), hn::Set(u32, kLowest));
    const U32Vector power = hn::Add(exponent, hn::Set(u32, std::uint32_t{kFormat.shift()} << 23));
    const F32Vector addend = hn::BitCast(f32, power);
    const F32Vector low = hn::MulAdd(magnitude, reciprocal_.low, addend);
    const F32Vector high = hn::MulAdd(magnitude, reciprocal_.high, addend);
    const U32Vector mantissa = hn::Sub(hn::BitCast(u32, low), power);
    const U32Vector field =
        hn::ShiftRight<kFormat.shift()>(hn::Sub(exponent, hn::Set(u32, kLowest)));
    const U32Vector sign = hn::And(hn::ShiftRight<24>(hn::BitCast(u32, x)), hn::Set(u32, 0x80u));
    codes = hn::Or(hn::Add(mantissa, field), sign);
    return hn::AllTrue(f32, hn::Eq(low, high));
  }

 private:
  // Exponent field of the smallest normal number.
  static constexpr std::uint32_t kLowest = static_cast<std::uint32_t>(128 - kFormat.bias()) << 23;
  // A quarter of a step above the largest code's value: what is larger becomes this, and this
  // rounds to that code.
  static constexpr float kLargest = kFormat.mantissa_bits == 3 ? 456.0f : 59392.0f;

  ReciprocalBracket reciprocal_;
  F32Vector limit_;
};

template <int kLowest, int kHighest> class IntegerCodes {
 public:
  explicit IntegerCodes(float scale)
      : reciprocal_(scale),
        least_(hn::Set(F32Tag(), scale * (kLowest - 0.25f))),
        most_(hn::Set(F32Tag(), scale * (kHighest + 0.25f))) {}

  bool encode(F32Vector x, U32Vector& codes) const {
    const F32Tag f32;
    const U32Tag u32;
    const F32Vector raised = hn::IfThenElse(hn::Lt(x, least_), least_, x);
    const F32Vector clamped = hn::IfThenElse(hn::Gt(raised, most_), most_, raised);
    // Sums in [2^23, 2^24): their unit is 1.
    const F32Vector addend = hn::Set(f32, 0x1.8p23f);
    const F32Vector low = hn::MulAdd(clamped, reciprocal_.low, addend);
    const F32Vector high = hn::MulAdd(clamped, reciprocal_.high, addend);
    codes = hn::And(hn::BitCast(u32, low), hn::Set(u32, kMask));
    return hn::AllTrue(f32, hn::Eq(low, high));
  }

 private:
  static constexpr std::uint32_t kMask = kHighest - kLowest;

  ReciprocalBracket reciprocal_;
  F32Vector least_;
  F32Vector most_;
};

template <DType kTo> struct CodesOf;
template <> struct CodesOf<DType::fp8_e4m3> { using Type = Fp8Codes<kE4M3>; };
template <> struct CodesOf<DType::fp8_e5m2> { using Type = Fp8Codes<kE5M2>; };
template <> struct CodesOf<DType::i8> { using Type = IntegerCodes<-128, 127>; };
template <> struct CodesOf<DType::i4> { using Type = IntegerCodes<-8, 7>; };
template <> struct CodesOf<DType::u4> { using Type = IntegerCodes<0, 15>; };

template <DType kTo> inline void store_codes(U32Vector codes, std::byte* target, AllLanes) {
  if constexpr (bits(kTo) == 4) return store_nibbles(codes, target);
  const hn::Rebind<std::uint8_t, U32Tag> u8;
  hn::StoreU(hn::TruncateTo(u8, codes), u8, reinterpret_cast<std::uint8_t*>(target));
}
template <DType kTo> inline void store_codes(U32Vector codes, std::byte* target, FirstLanes lanes) {
  alignas(64) std::byte part[kF32Lanes];
  store_codes<kTo>(codes, part, AllLanes{});
  __builtin_memcpy(target, part, static_cast<std::size_t>(bytes_of<kTo>(lanes.count)));
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
