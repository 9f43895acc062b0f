// SPDX-License-Identifier: Apache-2.0
#include "reference/gguf.h"

#include "quire/element.h"

namespace quire::reference {
namespace {

double load_f16(const std::uint8_t* bytes) {
  return load_element(bytes, DType::f16, 0);
}

std::vector<double> dequantize_q4_0(const std::uint8_t* block) {
  std::vector<double> values(32);
  const double d = load_f16(block);
  const std::uint8_t* codes = block + 2;
  for (std::size_t i = 0; i < 16; ++i) {
    values[i] = d * ((codes[i] & 0x0f) - 8);
    values[i + 16] = d * ((codes[i] >> 4) - 8);
  }
  return values;
}

std::vector<double> dequantize_q8_0(const std::uint8_t* block) {
  std::vector<double> values(32);
  const double d = load_f16(block);
  for (std::size_t i = 0; i < 32; ++i) values[i] = d * static_cast<std::int8_t>(block[2 + i]);
  return values;
}

struct ScaleMin {
  int scale;
  int min;
};

// Groups 0..3 have their six bits in bytes g and g + 4. Groups 4..7 have the low four bits of both
// in byte g + 4, the high two bits on top of the bytes of group g - 4.
ScaleMin q4_k_group(const std::uint8_t* packed, std::size_t group) {
  if (group < 4) return {packed[group] & 63, packed[group + 4] & 63};
  return {(packed[group + 4] & 0x0f) | ((packed[group - 4] >> 6) << 4),
          (packed[group + 4] >> 4) | ((packed[group] >> 6) << 4)};
}

std::vector<double> dequantize_q4_k(const std::uint8_t* block) {
  std::vector<double> values(256);
  const double d = load_f16(block);
  const double dmin = load_f16(block + 2);
  const std::uint8_t* packed = block + 4;
  const std::uint8_t* codes = block + 16;
  for (std::size_t column = 0; column < 256; ++column) {
    const std::size_t group = column / 32;
    const std::uint8_t byte = codes[group / 2 * 32 + column % 32];
    const int code = group % 2 == 0 ? byte & 0x0f : byte >> 4;
    const auto [scale, min] = q4_k_group(packed, group);
    values[column] = d * scale * code - dmin * min;
  }
  return values;
}

std::vector<double> dequantize_q6_k(const std::uint8_t* block) {
  std::vector<double> values(256);
  const double d = load_f16(block + 208);
  for (std::size_t column = 0; column < 256; ++column) {
    const std::size_t half = column / 128;
    const std::size_t quarter = column % 128 / 32;  // 32 columns that share bit positions
    const std::size_t lane = column % 32;
    const std::uint8_t low_byte = block[half * 64 + quarter % 2 * 32 + lane];
    const int low = quarter < 2 ? low_byte & 0x0f : low_byte >> 4;
    const int high = (block[128 + half * 32 + lane] >> (2 * quarter)) & 3;
    const auto scale = static_cast<std::int8_t>(block[192 + column / 16]);
    values[column] = d * scale * ((low | (high << 4)) - 32);
  }
  return values;
}

}  // namespace

GgufBlock gguf_block(WeightFormat format) {
  switch (format) {
    case WeightFormat::q4_0:
      return {32, 18};
    case WeightFormat::q8_0:
      return {32, 34};
    case WeightFormat::q4_k:
      return {256, 144};
    default:
      return {256, 210};
  }
}

std::vector<double> dequantize_gguf_block(WeightFormat format, const std::uint8_t* block) {
  switch (format) {
    case WeightFormat::q4_0:
      return dequantize_q4_0(block);
    case WeightFormat::q8_0:
      return dequantize_q8_0(block);
    case WeightFormat::q4_k:
      return dequantize_q4_k(block);
    default:
      return dequantize_q6_k(block);
  }
}

}  // namespace quire::reference
