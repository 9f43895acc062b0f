// SPDX-License-Identifier: Apache-2.0
// Rows of numbers to rows of any stored type, bit for bit as the reference has it: one rounding to
// nearest even, fp8 and integers saturating, every NaN of a small float format the one quiet NaN.
#pragma once

#include "cpu/simd/rows_bracket.h"
#include "cpu/simd/rows_quotient.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// The largest code of a type of 8 bits or fewer that has no zeros: amax / max_finite is the scale of a granule.
inline float max_finite_of(DType dtype) {
  if (dtype == DType::i4) return 7.0f;
  return dtype == DType::i8 ? 127.0f : dtype == DType::fp8_e4m3 ? 448.0f : 57344.0f;
}

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

// Bits of the largest magnitude among codes of a float type; NaN, above `infinity`, does not count.
template <typename Code>
inline Code largest_magnitude_code(const std::byte* x, std::int64_t count, Code infinity) {
  const hn::ScalableTag<Code> tag;
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<Code>());
  constexpr std::int64_t kBytes = sizeof(Code);
  const auto magnitude_mask = hn::Set(tag, static_cast<Code>(~(Code{1} << (8 * sizeof(Code) - 1))));
  const auto limit = hn::Set(tag, infinity);
  const auto larger = [&](auto largest, auto next) {
    const auto magnitude = hn::And(next, magnitude_mask);
    return hn::Max(largest, hn::IfThenZeroElse(hn::Gt(magnitude, limit), magnitude));
  };
  auto largest = hn::Zero(tag);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    largest = larger(largest, load_anywhere(tag, x + i * kBytes));
  }
  if (i < count) {
    alignas(64) Code part[kLanes] = {};
    __builtin_memcpy(part, x + i * kBytes, static_cast<std::size_t>(count - i) * sizeof(Code));
    largest = larger(largest, hn::LoadU(tag, part));
  }
  alignas(64) Code lanes[kLanes];
  hn::StoreU(largest, tag, lanes);
  Code result = 0;
  for (const Code lane : lanes) result = lane > result ? lane : result;
  return result;
}

// Largest |x|; NaN does not count. Magnitudes of one type are ordered like their codes.
template <DType kFrom> inline float largest_of(const std::byte* x, std::int64_t count) {
  std::byte code[4];
  if constexpr (kFrom == DType::f32) {
    const auto largest = largest_magnitude_code<std::int32_t>(x, count, 0x7f800000);
    __builtin_memcpy(code, &largest, sizeof(largest));
  } else {
    constexpr std::int16_t kInfinity = kFrom == DType::bf16 ? 0x7f80 : 0x7c00;
    const auto largest = largest_magnitude_code<std::int16_t>(x, count, kInfinity);
    __builtin_memcpy(code, &largest, sizeof(largest));
  }
  return widen_one(kFrom, code);
}

template <DType kFrom, DType kTo, typename Quotient>
inline void store_quotients(const std::byte* x, std::int64_t count, Quotient quotient,
                            std::byte* target) {
  over_lanes(count, [&](std::int64_t i, auto lanes) {
    const F32Vector value = load_lanes<kFrom>(x + i * kElementBytes<kFrom>, lanes);
    store_lanes<kTo>(quotient(with_stored_nan<kFrom, kTo>(value)), target + bytes_of<kTo>(i),
                     lanes);
  });
}

// The same for codes of 8 bits or 4 and scales that a bracket takes; `quotient` serves the lanes in doubt.
template <DType kFrom, DType kTo, typename Quotient>
inline void store_bracketed(const std::byte* x, std::int64_t count, float scale, Quotient quotient,
                            std::byte* target) {
  const typename CodesOf<kTo>::Type bracket(scale);
  over_lanes(count, [&](std::int64_t i, auto lanes) {
    const F32Vector value = load_lanes<kFrom>(x + i * kElementBytes<kFrom>, lanes);
    U32Vector codes;
    if (HWY_LIKELY(bracket.encode(value, codes))) {
      store_codes<kTo>(codes, target + bytes_of<kTo>(i), lanes);
    } else {
      store_lanes<kTo>(quotient(value), target + bytes_of<kTo>(i), lanes);
    }
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
  } else if (ReciprocalBracket::takes(scale) && FusedQuotient::takes(scale)) {
    store_bracketed<kFrom, kTo>(x, count, scale, FusedQuotient(scale), target);
  } else if (ReciprocalBracket::takes(scale)) {
    store_bracketed<kFrom, kTo>(x, count, scale, WideQuotient(scale), target);
  } else {
    store_quotients<kFrom, kTo>(x, count, WideQuotient(scale), target);
  }
}

// x itself.
template <DType kFrom, DType kTo>
inline void round_row(const std::byte* x, std::int64_t count, std::byte* target) {
  const auto itself = [](F32Vector value) { return value; };
  if constexpr (is_fp8(kTo)) {
    store_bracketed<kFrom, kTo>(x, count, 1.0f, itself, target);
  } else {
    store_quotients<kFrom, kTo>(x, count, itself, target);
  }
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
  narrow_one(dtype, scale.value, scale.code);
  scale.value = widen_one(dtype, scale.code);
  return scale;
}

inline void write_scale(DType dtype, const StoredScale& scale, std::byte* address) {
  __builtin_memcpy(address, scale.code, static_cast<std::size_t>(bits(dtype) / 8));
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
