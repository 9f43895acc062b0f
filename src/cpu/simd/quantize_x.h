// SPDX-License-Identifier: Apache-2.0
// Rows of X as int8 in groups: scale = amax / 127 rounded to f32, code = x / scale to nearest even.
//
// A quantized row has its codes in the order of the weight's words: per eight k: k0 k4 k1 k5, then k2 k6 k3 k7.
#pragma once

#include "cpu/simd/encode_row.h"
#include "cpu/simd/packed_numbers.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// A group of a row, quantized.
struct QuantizedGroup {
  static constexpr std::int64_t kMost = 128;  // columns

  alignas(64) std::int8_t codes[kMost];  // in the order of k
  float scale;
  std::int32_t sum;  // of the codes
};

// A quantized row: i8 [depth] codes, then of each group its f32 scale, the i32 that its products start from, and the sum
// of its codes: i32, or f32 and scaled where the weight has mins.
struct QuantizedRow {
  std::int64_t depth;  // of the packed weight
  std::int64_t groups;

  std::int64_t bytes() const { return round_up_to(depth + 12 * groups, 64); }
  std::int8_t* codes(std::byte* row) const { return reinterpret_cast<std::int8_t*>(row); }
  float* scales(std::byte* row) const { return reinterpret_cast<float*>(row + depth); }
  std::int32_t* starts(std::byte* row) const {
    return reinterpret_cast<std::int32_t*>(row + depth + 4 * groups);
  }
  std::int32_t* sums(std::byte* row) const {
    return reinterpret_cast<std::int32_t*>(row + depth + 8 * groups);
  }
  float* scaled_sums(std::byte* row) const { return reinterpret_cast<float*>(sums(row)); }
};

// Whole sixteens of codes, in the order of the weight's words.
inline void order_codes(const std::int8_t* codes, std::int64_t count, std::int8_t* out) {
  const hn::Full128<std::int8_t> i8;
  alignas(16) static constexpr std::int8_t kFrom[16] = {0, 4,  1, 5,  2,  6,  3,  7,
                                                        8, 12, 9, 13, 10, 14, 11, 15};
  const auto order = hn::Load(i8, kFrom);
  for (std::int64_t i = 0; i < count; i += 16) {
    hn::StoreU(hn::TableLookupBytes(hn::LoadU(i8, codes + i), order), i8, out + i);
  }
}

// x / scale for a quotient that is rounded to an integer next. The product with 1 / scale is less than 2^-14 off
// for quotients up to 128, so the division is left to lanes that close to the middle between two integers.
class NearQuotient {
 public:
  static bool takes(float scale) { return scale >= 0x1p-100f && scale <= 0x1p100f; }

  explicit NearQuotient(float scale)
      : scale_(hn::Set(F32Tag(), scale)), inverse_(hn::Set(F32Tag(), 1.0f / scale)) {}
  F32Vector operator()(F32Vector x) const {
    const F32Tag f32;
    const F32Vector product = hn::Mul(x, inverse_);
    const F32Vector off = hn::Abs(hn::Sub(product, hn::Round(product)));
    const auto is_near = hn::Gt(off, hn::Set(f32, 0.5f - 0x1p-14f));
    return hn::AllFalse(f32, is_near) ? product : hn::Div(x, scale_);
  }

 private:
  F32Vector scale_;
  F32Vector inverse_;
};

// values [count] over a scale that NearQuotient takes, in the order of k; the sum of the codes.
inline std::int32_t quantize_group(const float* values, std::int64_t count, float scale,
                                   std::int8_t* codes) {
  const F32Tag f32;
  const hn::RebindToSigned<U32Tag> i32;
  const hn::Rebind<std::int8_t, F32Tag> i8;
  const NearQuotient quotient(scale);
  auto sums = hn::Zero(i32);
  for (std::int64_t i = 0; i < count; i += kF32Lanes) {
    const F32Vector value = quotient(hn::LoadU(f32, values + i));
    // At most 127: scale · 128 is more than any of them. NaN becomes 0.
    const auto code = hn::NearestInt(hn::IfThenElseZero(hn::Eq(value, value), value));
    sums = hn::Add(sums, code);
    hn::StoreU(hn::DemoteTo(i8, code), i8, codes + i);
  }
  return hn::GetLane(hn::SumOfLanes(i32, sums));
}

// The same for any scale; values are used up.
inline std::int32_t quantize_any_group(float* values, std::int64_t count, float scale,
                                       std::int8_t* codes) {
  divide_by(values, count, scale, DType::f32);  // the quotient is an f32 number, rounded again
  narrow_row(DType::i8, values, count, reinterpret_cast<std::byte*>(codes));
  std::int32_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += codes[i];
  return sum;
}

// values [columns], whole groups of a multiple of 16, are used up; put(group, quantized) for each.
template <typename Put>
inline void quantize_row(std::int64_t group, std::int64_t columns, float* values, Put&& put) {
  QuantizedGroup out;
  for (std::int64_t g = 0; g < columns / group; ++g) {
    float* part = values + g * group;
    out.scale = largest_magnitude(part, group) / 127.0f;
    out.sum = NearQuotient::takes(out.scale)
                  ? quantize_group(part, group, out.scale, out.codes)
                  : quantize_any_group(part, group, out.scale, out.codes);
    put(g, out);
  }
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
