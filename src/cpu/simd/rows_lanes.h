// SPDX-License-Identifier: Apache-2.0
// Loops over the columns of a row in vectors of f32: whole vectors first, then the rest of the row
// in a part of one. Nothing past the row is read or written.
#pragma once

#include "cpu/simd/convert_row.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

using F64Tag = hn::ScalableTag<double>;
using F64Vector = hn::Vec<F64Tag>;
using F32HalfTag = hn::Rebind<float, F64Tag>;  // as many f32 as there are lanes of f64

struct AllLanes {
  static constexpr std::int64_t kCount = kF32Lanes;
};
struct FirstLanes {
  std::int64_t count;  // fewer than kF32Lanes
};

template <DType kType> inline F32Vector load_lanes(const std::byte* source, AllLanes) {
  return load_as_f32<kType>(source);
}
// The other lanes are 0.
template <DType kType> inline F32Vector load_lanes(const std::byte* source, FirstLanes lanes) {
  alignas(64) std::byte part[bytes_of<kType>(kF32Lanes)] = {};
  __builtin_memcpy(part, source, static_cast<std::size_t>(bytes_of<kType>(lanes.count)));
  return load_as_f32<kType>(part);
}

template <DType kType> inline void store_lanes(F32Vector value, std::byte* target, AllLanes) {
  store_from_f32<kType>(value, target);
}
template <DType kType>
inline void store_lanes(F32Vector value, std::byte* target, FirstLanes lanes) {
  alignas(64) std::byte part[bytes_of<kType>(kF32Lanes)];
  store_from_f32<kType>(value, part);
  __builtin_memcpy(target, part, static_cast<std::size_t>(bytes_of<kType>(lanes.count)));
}

// body(first column, AllLanes or FirstLanes)
template <typename Body> inline void over_lanes(std::int64_t count, Body&& body) {
  std::int64_t i = 0;
  for (; i + kF32Lanes <= count; i += kF32Lanes) body(i, AllLanes{});
  if (i < count) body(i, FirstLanes{count - i});
}

inline F64Vector lower_as_f64(F32Vector value) {
  return hn::PromoteTo(F64Tag(), hn::LowerHalf(F32HalfTag(), value));
}
inline F64Vector upper_as_f64(F32Vector value) {
  return hn::PromoteTo(F64Tag(), hn::UpperHalf(F32HalfTag(), value));
}

// function(TypeTag) for the types of activations, and for those of unscaled rows.
template <typename Function> inline void on_activation(DType type, Function&& function) {
  if (type == DType::f32) return function(TypeTag<DType::f32>{});
  if (type == DType::f16) return function(TypeTag<DType::f16>{});
  return function(TypeTag<DType::bf16>{});
}
template <typename Function> inline void on_float(DType type, Function&& function) {
  if (type == DType::fp8_e4m3) return function(TypeTag<DType::fp8_e4m3>{});
  if (type == DType::fp8_e5m2) return function(TypeTag<DType::fp8_e5m2>{});
  return on_activation(type, function);
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
