// SPDX-License-Identifier: Apache-2.0
#include "quire/element.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "quire/float_format.h"

namespace quire {
namespace {

// memcpy, because cache rows of mixed formats need not be aligned to their parts' types.
template <typename T> T read(const void* base, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + index * std::int64_t{sizeof(T)}, sizeof(T));
  return value;
}

template <typename T> void write(void* base, std::int64_t index, T value) {
  std::memcpy(static_cast<char*>(base) + index * std::int64_t{sizeof(T)}, &value, sizeof(T));
}

template <FloatFormat kFormat> constexpr std::array<float, 256> decode_table() {
  std::array<float, 256> table{};
  for (std::uint32_t code = 0; code < 256; ++code) {
    table[code] = static_cast<float>(decode_float<kFormat>(code));
  }
  return table;
}

constexpr std::array<float, 256> kE4M3Values = decode_table<kFp8E4M3>();
constexpr std::array<float, 256> kE5M2Values = decode_table<kFp8E5M2>();

// Nearest integer, ties to even, inside [low, high]; NaN gives 0.
double round_saturated(double value, double low, double high) {
  if (std::isnan(value)) return 0.0;
  const double rounded = std::nearbyint(value);
  return rounded < low ? low : (rounded > high ? high : rounded);
}

template <typename T> T to_integer(double value) {
  // int64's maximum is not a double; the largest double below it is the limit there.
  constexpr double kHigh = std::is_same_v<T, std::int64_t>
                               ? 9223372036854774784.0
                               : static_cast<double>(std::numeric_limits<T>::max());
  return static_cast<T>(
      round_saturated(value, static_cast<double>(std::numeric_limits<T>::min()), kHigh));
}

// 2^(code - 127); the highest code is NaN.
constexpr int kE8M0Bias = 127;
constexpr std::uint8_t kE8M0Largest = 0xfe;
constexpr std::uint8_t kE8M0NaN = 0xff;

double decode_e8m0(std::uint8_t code) {
  return code == kE8M0NaN ? std::numeric_limits<double>::quiet_NaN()
                          : power_of_two(int{code} - kE8M0Bias);
}

// The smallest power of two that is not below the value.
std::uint8_t encode_e8m0(double value) {
  if (std::isnan(value)) return kE8M0NaN;
  if (!(value > power_of_two(-kE8M0Bias))) return 0;
  if (value > power_of_two(kE8M0Bias)) return kE8M0Largest;
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);  // in [0.5, 1)
  return static_cast<std::uint8_t>((mantissa == 0.5 ? exponent - 1 : exponent) + kE8M0Bias);
}

std::uint8_t read_nibble(const void* base, std::int64_t index) {
  const std::uint8_t byte = read<std::uint8_t>(base, index / 2);
  return index % 2 == 0 ? byte & 0x0f : byte >> 4;
}

void write_nibble(void* base, std::int64_t index, int code) {
  const int byte = read<std::uint8_t>(base, index / 2);
  const int nibble = code & 0x0f;
  const int joined = index % 2 == 0 ? (byte & 0xf0) | nibble : (byte & 0x0f) | (nibble << 4);
  write(base, index / 2, static_cast<std::uint8_t>(joined));
}

}  // namespace

double load_element(const void* base, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::f32:
      return read<float>(base, index);
    case DType::f16:
      return decode_float<kFloat16>(read<std::uint16_t>(base, index));
    case DType::bf16:
      return std::bit_cast<float>(std::uint32_t{read<std::uint16_t>(base, index)} << 16);
    case DType::fp8_e4m3:
      return kE4M3Values[read<std::uint8_t>(base, index)];
    case DType::fp8_e5m2:
      return kE5M2Values[read<std::uint8_t>(base, index)];
    case DType::i8:
      return read<std::int8_t>(base, index);
    case DType::i4:
      return static_cast<int>(read_nibble(base, index) ^ 8u) - 8;
    case DType::u4:
      return read_nibble(base, index);
    case DType::u8:
      return read<std::uint8_t>(base, index);
    case DType::i32:
      return read<std::int32_t>(base, index);
    case DType::u32:
      return read<std::uint32_t>(base, index);
    case DType::i64:
      return static_cast<double>(read<std::int64_t>(base, index));
    case DType::e8m0:
      return decode_e8m0(read<std::uint8_t>(base, index));
  }
  return 0.0;
}

void store_element(void* base, DType dtype, std::int64_t index, double value) {
  switch (dtype) {
    case DType::f32:
      return write(base, index, static_cast<float>(value));
    case DType::f16:
      return write(base, index, static_cast<std::uint16_t>(encode_float<kFloat16>(value)));
    case DType::bf16:
      return write(base, index, static_cast<std::uint16_t>(encode_float<kBFloat16>(value)));
    case DType::fp8_e4m3:
      return write(base, index, static_cast<std::uint8_t>(encode_float<kFp8E4M3>(value)));
    case DType::fp8_e5m2:
      return write(base, index, static_cast<std::uint8_t>(encode_float<kFp8E5M2>(value)));
    case DType::i8:
      return write(base, index, to_integer<std::int8_t>(value));
    case DType::i4:
      return write_nibble(base, index, static_cast<int>(round_saturated(value, -8.0, 7.0)));
    case DType::u4:
      return write_nibble(base, index, static_cast<int>(round_saturated(value, 0.0, 15.0)));
    case DType::u8:
      return write(base, index, to_integer<std::uint8_t>(value));
    case DType::i32:
      return write(base, index, to_integer<std::int32_t>(value));
    case DType::u32:
      return write(base, index, to_integer<std::uint32_t>(value));
    case DType::i64:
      return write(base, index, to_integer<std::int64_t>(value));
    case DType::e8m0:
      return write(base, index, encode_e8m0(value));
  }
}

double round_to(DType dtype, double value) {
  std::array<char, 8> slot{};
  store_element(slot.data(), dtype, 0, value);
  return load_element(slot.data(), dtype, 0);
}

double max_finite(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return std::numeric_limits<float>::max();
    case DType::f16:
      return decode_float<kFloat16>(kFloat16.max_finite());
    case DType::bf16:
      return decode_float<kBFloat16>(kBFloat16.max_finite());
    case DType::fp8_e4m3:
      return decode_float<kFp8E4M3>(kFp8E4M3.max_finite());
    case DType::fp8_e5m2:
      return decode_float<kFp8E5M2>(kFp8E5M2.max_finite());
    case DType::e8m0:
      return decode_e8m0(kE8M0Largest);
    default:
      // Symmetric use: -128 is left out of i8, -8 of i4.
      return static_cast<double>((std::int64_t{1} << (bits(dtype) - 1)) - 1);
  }
}

}  // namespace quire
