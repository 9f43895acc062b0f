// SPDX-License-Identifier: Apache-2.0
// Rows of codes in their own type, as the reference stores them: each is a number that is read and
// written again, so that a NaN becomes the type's quiet one and fp8's infinities saturate.
#pragma once

#include "cpu/simd/rows_encode.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// Magnitudes from `special` on become `largest`, above it `nan`; the sign stays.
template <typename Code> struct CodeLimits {
  Code sign;
  Code special;
  Code largest;
  Code nan;
};

template <typename Code>
inline void copy_codes(const std::byte* source, std::int64_t count, CodeLimits<Code> limits,
                       std::byte* target) {
  const hn::ScalableTag<Code> tag;
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<Code>());
  const auto normalize = [&](auto codes) {
    const auto sign = hn::And(codes, hn::Set(tag, limits.sign));
    const auto magnitude = hn::Xor(codes, sign);
    const auto number = hn::Min(magnitude, hn::Set(tag, limits.largest));
    const auto is_nan = hn::Gt(magnitude, hn::Set(tag, limits.special));
    return hn::Or(hn::IfThenElse(is_nan, hn::Set(tag, limits.nan), number), sign);
  };
  constexpr std::int64_t kBytes = sizeof(Code);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store_anywhere(normalize(load_anywhere(tag, source + i * kBytes)), tag, target + i * kBytes);
  }
  if (i == count) return;
  const auto rest = static_cast<std::size_t>(count - i) * sizeof(Code);
  alignas(64) Code part[kLanes] = {};
  __builtin_memcpy(part, source + i * kBytes, rest);
  hn::StoreU(normalize(hn::LoadU(tag, part)), tag, part);
  __builtin_memcpy(target + i * kBytes, part, rest);
}

inline void copy_row(DType type, const std::byte* source, std::int64_t count, std::byte* target) {
  switch (type) {
    case DType::f32:
      return round_row<DType::f32, DType::f32>(source, count, target);
    case DType::f16:
      return copy_codes<std::uint16_t>(source, count, {0x8000, 0x7c00, 0x7c00, 0x7e00}, target);
    case DType::bf16:
      return copy_codes<std::uint16_t>(source, count, {0x8000, 0x7f80, 0x7f80, 0x7fc0}, target);
    case DType::fp8_e5m2:
      return copy_codes<std::uint8_t>(source, count, {0x80, 0x7c, 0x7b, 0x7e}, target);
    default:  // e4m3 and i8: every code is its own
      __builtin_memcpy(target, source, static_cast<std::size_t>(count));
  }
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
