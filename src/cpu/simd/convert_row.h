// SPDX-License-Identifier: Apache-2.0
// Whole rows of a dtype known at run time, to and from f32. Nothing past the row is touched.
#pragma once

#include "cpu/simd/convert.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

template <DType kType> inline constexpr std::int64_t kElementBytes = bits(kType) / 8;

// Bytes of so many elements. Rows of 4-bit elements are taken apart between bytes alone.
template <DType kType> constexpr std::int64_t bytes_of(std::int64_t count) {
  return bits(kType) < 8 ? bytes_for(kType, count) : count * kElementBytes<kType>;
}

// function(std::integral_constant-like tag) for the element types of tensors and rows.
template <DType kType> struct TypeTag { static constexpr DType kValue = kType; };

template <typename Function> inline void on_type(DType type, Function&& function) {
  switch (type) {
    case DType::f32:
      return function(TypeTag<DType::f32>{});
    case DType::f16:
      return function(TypeTag<DType::f16>{});
    case DType::bf16:
      return function(TypeTag<DType::bf16>{});
    case DType::fp8_e4m3:
      return function(TypeTag<DType::fp8_e4m3>{});
    case DType::fp8_e5m2:
      return function(TypeTag<DType::fp8_e5m2>{});
    case DType::i8:
      return function(TypeTag<DType::i8>{});
    case DType::i4:
      return function(TypeTag<DType::i4>{});
    case DType::u4:
      return function(TypeTag<DType::u4>{});
    default:
      return;
  }
}

template <DType kType>
inline void widen_row(const std::byte* source, std::int64_t count, float* values) {
  std::int64_t i = 0;
  for (; i + kF32Lanes <= count; i += kF32Lanes) {
    hn::StoreU(load_as_f32<kType>(source + bytes_of<kType>(i)), F32Tag(), values + i);
  }
  if (i == count) return;
  alignas(64) std::byte part[bytes_of<kType>(kF32Lanes)] = {};
  alignas(64) float wide[kF32Lanes];
  __builtin_memcpy(part, source + bytes_of<kType>(i),
                   static_cast<std::size_t>(bytes_of<kType>(count - i)));
  hn::StoreU(load_as_f32<kType>(part), F32Tag(), wide);
  __builtin_memcpy(values + i, wide, static_cast<std::size_t>(count - i) * sizeof(float));
}

template <DType kType>
inline void narrow_row(const float* values, std::int64_t count, std::byte* target) {
  std::int64_t i = 0;
  for (; i + kF32Lanes <= count; i += kF32Lanes) {
    store_from_f32<kType>(hn::LoadU(F32Tag(), values + i), target + bytes_of<kType>(i));
  }
  if (i == count) return;
  alignas(64) float wide[kF32Lanes] = {};
  alignas(64) std::byte part[bytes_of<kType>(kF32Lanes)];
  __builtin_memcpy(wide, values + i, static_cast<std::size_t>(count - i) * sizeof(float));
  store_from_f32<kType>(hn::LoadU(F32Tag(), wide), part);
  __builtin_memcpy(target + bytes_of<kType>(i), part,
                   static_cast<std::size_t>(bytes_of<kType>(count - i)));
}

inline void widen_row(DType type, const std::byte* source, std::int64_t count, float* values) {
  on_type(type, [&](auto tag) { widen_row<decltype(tag)::kValue>(source, count, values); });
}
inline void narrow_row(DType type, const float* values, std::int64_t count, std::byte* target) {
  on_type(type, [&](auto tag) { narrow_row<decltype(tag)::kValue>(values, count, target); });
}

inline float f32_from_f16(std::uint16_t code) {
  const std::uint32_t magnitude = code & 0x7fffu;
  float value;
  if (magnitude < 0x400u) {  // zero or subnormal
    value = static_cast<float>(magnitude) * 0x1p-24f;
  } else {
    const std::uint32_t exponent = magnitude < 0x7c00u ? 112u << 23 : 224u << 23;
    const std::uint32_t bits = (magnitude << 13) + exponent;
    __builtin_memcpy(&value, &bits, sizeof(value));
  }
  return (code & 0x8000u) != 0 ? -value : value;
}

inline float f32_from_e8m0(std::uint8_t code) {
  // The lowest code is a subnormal of f32, the highest NaN.
  const std::uint32_t bits = code == 0xffu ? 0x7fc00000u
                             : code == 0u  ? 0x00400000u
                                           : std::uint32_t{code} << 23;
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

// The smallest power of two that is not below the value.
inline std::uint8_t e8m0_from_f32(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  if (value != value) return 0xff;
  if (!(value > 0x1p-127f)) return 0;
  const std::uint32_t code = (bits >> 23) + ((bits & 0x7fffffu) != 0 ? 1u : 0u);
  return static_cast<std::uint8_t>(code < 0xfeu ? code : 0xfeu);
}

// One element, for scales.
inline float widen_one(DType type, const std::byte* source) {
  float value = 0.0f;
  if (type == DType::e8m0) return f32_from_e8m0(static_cast<std::uint8_t>(*source));
  if (type == DType::f32) {
    __builtin_memcpy(&value, source, sizeof(value));
  } else if (type == DType::f16) {
    std::uint16_t code;
    __builtin_memcpy(&code, source, sizeof(code));
    value = f32_from_f16(code);
  } else {
    widen_row(type, source, 1, &value);
  }
  return value;
}
inline void narrow_one(DType type, float value, std::byte* target) {
  if (type == DType::e8m0) {
    *target = static_cast<std::byte>(e8m0_from_f32(value));
  } else {
    narrow_row(type, &value, 1, target);
  }
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
