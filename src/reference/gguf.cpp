// SPDX-License-Identifier: Apache-2.0
#include "reference/gguf.h"

#include <array>
#include <cmath>

#include "quire/element.h"

namespace quire::reference {
namespace {

double load_f16(const std::uint8_t* bytes) {
  return load_element(bytes, DType::f16, 0);
}

// Byte i: column i in the low nibble, column i + 16 in the high one.
int nibble_of(const std::uint8_t* codes, std::size_t column) {
  const std::uint8_t byte = codes[column % 16];
  return column < 16 ? byte & 0x0f : byte >> 4;
}

int high_bit_of(const std::uint8_t* bits, std::size_t column) {
  return (bits[column / 8] >> (column % 8) & 1) << 4;
}

// value(column) for each of 32 columns.
template <typename Value> std::vector<double> make_block_of_32(Value&& value) {
  std::vector<double> values(32);
  for (std::size_t column = 0; column < 32; ++column) values[column] = value(column);
  return values;
}

std::vector<double> dequantize_q4_0(const std::uint8_t* block) {
  const double d = load_f16(block);
  return make_block_of_32([&](std::size_t i) { return d * (nibble_of(block + 2, i) - 8); });
}

std::vector<double> dequantize_q4_1(const std::uint8_t* block) {
  const double d = load_f16(block);
  const double m = load_f16(block + 2);
  return make_block_of_32([&](std::size_t i) { return d * nibble_of(block + 4, i) + m; });
}

std::vector<double> dequantize_q5_0(const std::uint8_t* block) {
  const double d = load_f16(block);
  return make_block_of_32([&](std::size_t i) {
    return d * ((nibble_of(block + 6, i) | high_bit_of(block + 2, i)) - 16);
  });
}

std::vector<double> dequantize_q5_1(const std::uint8_t* block) {
  const double d = load_f16(block);
  const double m = load_f16(block + 2);
  return make_block_of_32(
      [&](std::size_t i) { return d * (nibble_of(block + 8, i) | high_bit_of(block + 4, i)) + m; });
}

std::vector<double> dequantize_iq4_nl(const std::uint8_t* block) {
  constexpr std::array<int, 16> kTable{-127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113};
  const double d = load_f16(block);
  return make_block_of_32(
      [&](std::size_t i) { return d * kTable[static_cast<std::size_t>(nibble_of(block + 2, i))]; });
}

// sign | two bits of exponent, bias 1 | one bit of fraction.
double e2m1_value(int code) {
  const int exponent = code >> 1 & 3;
  const int fraction = code & 1;
  const double magnitude =
      exponent == 0 ? 0.5 * fraction : std::ldexp(1.0 + 0.5 * fraction, exponent - 1);
  return (code & 8) != 0 && magnitude != 0.0 ? -magnitude : magnitude;
}

std::vector<double> dequantize_mxfp4(const std::uint8_t* block) {
  const double scale = std::ldexp(1.0, block[0] - 127);
  return make_block_of_32(
      [&](std::size_t i) { return scale * e2m1_value(nibble_of(block + 1, i)); });
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

// `high`: bit g of byte i is bit 4 of column i of group g; null for q4_k.
std::vector<double> dequantize_with_mins(const std::uint8_t* block, const std::uint8_t* high,
                                         const std::uint8_t* codes) {
  std::vector<double> values(256);
  const double d = load_f16(block);
  const double dmin = load_f16(block + 2);
  const std::uint8_t* packed = block + 4;
  for (std::size_t column = 0; column < 256; ++column) {
    const std::size_t group = column / 32;
    const std::uint8_t byte = codes[group / 2 * 32 + column % 32];
    const int low = group % 2 == 0 ? byte & 0x0f : byte >> 4;
    const int bit = high == nullptr ? 0 : (high[column % 32] >> group & 1) << 4;
    const auto [scale, min] = q4_k_group(packed, group);
    values[column] = d * scale * (low | bit) - dmin * min;
  }
  return values;
}

std::vector<double> dequantize_q4_k(const std::uint8_t* block) {
  return dequantize_with_mins(block, nullptr, block + 16);
}

std::vector<double> dequantize_q5_k(const std::uint8_t* block) {
  return dequantize_with_mins(block, block + 16, block + 48);
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

std::vector<double> dequantize_gguf_block(WeightFormat format, const std::uint8_t* block) {
  switch (format) {
    case WeightFormat::q4_0:
      return dequantize_q4_0(block);
    case WeightFormat::q4_1:
      return dequantize_q4_1(block);
    case WeightFormat::q5_0:
      return dequantize_q5_0(block);
    case WeightFormat::q5_1:
      return dequantize_q5_1(block);
    case WeightFormat::q8_0:
      return dequantize_q8_0(block);
    case WeightFormat::iq4_nl:
      return dequantize_iq4_nl(block);
    case WeightFormat::mxfp4:
      return dequantize_mxfp4(block);
    case WeightFormat::q4_k:
      return dequantize_q4_k(block);
    case WeightFormat::q5_k:
      return dequantize_q5_k(block);
    default:
      return dequantize_q6_k(block);
  }
}

}  // namespace quire::reference
