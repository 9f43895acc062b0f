// SPDX-License-Identifier: Apache-2.0
// Rows of X as int8 in groups: scale = amax / 127 rounded to f32, code = x / scale to nearest even.
//
// A quantized row: i8 [depth] in the order of the weight's words (per eight k: k0 k4 k1 k5, then
// k2 k6 k3 k7), f32 [groups] scales, i32 [groups] sums of the codes, f32 [groups] sums of what the codes stand for.
#pragma once

#include "cpu/simd/encode_row.h"
#include "cpu/simd/packed_numbers.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

struct QuantizedRow {
  std::int64_t depth;  // of the packed weight
  std::int64_t groups;

  std::int64_t bytes() const { return round_up_to(depth + 12 * groups, 64); }
  std::int8_t* codes(std::byte* row) const { return reinterpret_cast<std::int8_t*>(row); }
  float* scales(std::byte* row) const { return reinterpret_cast<float*>(row + depth); }
  std::int32_t* sums(std::byte* row) const {
    return reinterpret_cast<std::int32_t*>(row + depth + 4 * groups);
  }
  float* scaled_sums(std::byte* row) const {
    return reinterpret_cast<float*>(row + depth + 8 * groups);
  }
};

// values [columns], used up.
inline void quantize_row(const QuantizedRow& shape, std::int64_t group, std::int64_t columns,
                         float* values, std::byte* row) {
  constexpr std::int64_t kPlace[8] = {0, 2, 4, 6, 1, 3, 5, 7};
  for (std::int64_t g = 0; g < shape.groups; ++g) {
    float* part = values + g * group;
    const std::int64_t left = columns - g * group;
    const std::int64_t count = left < group ? left : group;
    const float scale = largest_magnitude(part, count) / 127.0f;
    divide_by(part, count, scale, DType::f32);  // the quotient is an f32 number, rounded again
    std::int8_t codes[256];
    narrow_row(DType::i8, part, count, reinterpret_cast<std::byte*>(codes));
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t k = g * group + i;
      shape.codes(row)[k / 8 * 8 + kPlace[k % 8]] = codes[i];
      sum += codes[i];
    }
    shape.scales(row)[g] = scale;
    shape.sums(row)[g] = sum;
    shape.scaled_sums(row)[g] = static_cast<float>(sum) * scale;
  }
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
