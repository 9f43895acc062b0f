// SPDX-License-Identifier: Apache-2.0
// Rows of numbers to rows of any stored type, bit for bit as the reference has it: one rounding to
// nearest even, fp8 and i8 saturating, every NaN of a small float format the one quiet NaN.
#pragma once

#include "cpu/simd/rows_quotient.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// The NaN that the reference would make of it on the way from kFrom to kTo. 8-bit types and f16
// have one NaN, which their encoders choose.
template <DType kFrom, DType kTo> inline F32Vector with_stored_nan(F32Vector value) {
  const F32Tag f32;
  const U32Tag u32;
  if constexpr (kTo != DType::f32 && kTo != DType::bf16) return value;
  const U32Vector bits = hn::BitCast(u32, value);
  // f32 keeps the payload of f32 and bf16.
  constexpr bool kKeepsPayload = kTo == DType::f32 && kFrom != DType::f16;
  const U32Vector kept = hn::And(bits, hn::Set(u32, kKeepsPayload ? 0xffffffffu : 0x80000000u));
  const U32Vector nan = hn::Or(kept, hn::Set(u32, 0x7fc00000u));
  return hn::IfThenElse(hn::IsNaN(value), hn::BitCast(f32, nan), value);
}

// Largest |x|; NaN does not count.
template <DType kFrom> inline float largest_of(const std::byte* x, std::int64_t count) {
  const F32Tag f32;
  F32Vector largest = hn::Zero(f32);
  over_lanes(count, [&](std::int64_t i, auto lanes) {
    const F32Vector magnitude = hn::Abs(load_lanes<kFrom>(x + i * kElementBytes<kFrom>, lanes));
    largest = hn::IfThenElse(hn::Gt(magnitude, largest), magnitude, largest);
  });
  return hn::GetLane(hn::MaxOfLanes(f32, largest));
}

template <DType kFrom, DType kTo, typename Quotient>
inline void store_quotients(const std::byte* x, std::int64_t count, Quotient quotient,
                            std::byte* target) {
  over_lanes(count, [&](std::int64_t i, auto lanes) {
    const F32Vector value = load_lanes<kFrom>(x + i * kElementBytes<kFrom>, lanes);
    store_lanes<kTo>(quotient(with_stored_nan<kFrom, kTo>(value)), target + i * kElementBytes<kTo>,
                     lanes);
  });
}

// x / scale.
template <DType kFrom, DType kTo>
inline void quantize_row(const std::byte* x, std::int64_t count, float scale, std::byte* target) {
  if (scale == 0.0f) {
    store_quotients<kFrom, kTo>(x, count, ZeroQuotient(), target);
  } else if constexpr (kTo == DType::f32) {
    store_quotients<kFrom, kTo>(x, count, PlainQuotient(scale), target);
  } else if constexpr (bits(kTo) > 8) {
    store_quotients<kFrom, kTo>(x, count, WideQuotient(scale), target);
  } else if (FusedQuotient::takes(scale)) {
    store_quotients<kFrom, kTo>(x, count, FusedQuotient(scale), target);
  } else {
    store_quotients<kFrom, kTo>(x, count, WideQuotient(scale), target);
  }
}

// x itself.
template <DType kFrom, DType kTo>
inline void round_row(const std::byte* x, std::int64_t count, std::byte* target) {
  store_quotients<kFrom, kTo>(
      x, count, [](F32Vector value) { return value; }, target);
}

// A scale as its tensor keeps it.
struct StoredScale {
  float value;
  alignas(4) std::byte code[4];
};

// Rounded once from double.
inline StoredScale round_scale(DType dtype, double exact) {
  StoredScale scale{};
  scale.value = static_cast<float>(exact);
  if (dtype != DType::f32) {
    const double rest = exact - static_cast<double>(scale.value);
    const float sign = rest > 0.0 ? 1.0f : rest < 0.0 ? -1.0f : 0.0f;
    const F32Tag f32;
    scale.value = hn::GetLane(to_odd(hn::Set(f32, scale.value), hn::Set(f32, sign)));
  }
  narrow_row(dtype, &scale.value, 1, scale.code);
  scale.value = widen_one(dtype, scale.code);
  return scale;
}

inline void write_scale(DType dtype, const StoredScale& scale, std::byte* address) {
  __builtin_memcpy(address, scale.code, static_cast<std::size_t>(bits(dtype) / 8));
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
