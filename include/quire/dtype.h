// SPDX-License-Identifier: Apache-2.0
// Element types of every tensor Quire reads or writes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "quire/export.h"
#include "quire/host_device.h"

namespace quire {

enum class DType : std::uint8_t {
  f32,
  f16,
  bf16,
  fp8_e4m3,  // finite-only e4m3 ("e4m3fn"): max 448, no infinity, 0x7f and 0xff are NaN
  fp8_e5m2,  // IEEE-like e5m2: max 57344, has infinities; Quire's stores saturate all the same
  i8,
  i4,  // two's complement, two per byte, the even element in the low nibble
  u4,  // unsigned codes 0..15, packed the same way
  u8,
  i32,
  u32,
  i64,
  // A power of two without sign or zero: code c is 2^(c - 127), 255 is NaN. For scales; numbers are rounded
  // up to it.
  e8m0,
};

inline constexpr DType kAllDTypes[] = {
    DType::f32, DType::f16, DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2, DType::i8,   DType::i4,
    DType::u4,  DType::u8,  DType::i32,  DType::u32,      DType::i64,      DType::e8m0,
};

// Bits of one element: 4 for the packed types.
QUIRE_HOST_DEVICE constexpr int bits(DType dtype) {
  switch (dtype) {
    case DType::i64:
      return 64;
    case DType::f32:
    case DType::i32:
    case DType::u32:
      return 32;
    case DType::f16:
    case DType::bf16:
      return 16;
    case DType::fp8_e4m3:
    case DType::fp8_e5m2:
    case DType::i8:
    case DType::u8:
    case DType::e8m0:
      return 8;
    case DType::i4:
    case DType::u4:
      return 4;
  }
  return 0;
}

// Bytes that `count` elements take when packed without gaps (4-bit rows round up to a whole byte).
QUIRE_HOST_DEVICE constexpr std::int64_t bytes_for(DType dtype, std::int64_t count) {
  return (count * bits(dtype) + 7) / 8;
}

QUIRE_HOST_DEVICE constexpr bool is_float(DType dtype) {
  return dtype <= DType::fp8_e5m2;
}
QUIRE_HOST_DEVICE constexpr bool is_fp8(DType dtype) {
  return dtype == DType::fp8_e4m3 || dtype == DType::fp8_e5m2;
}
QUIRE_HOST_DEVICE constexpr bool is_half(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16;
}

QUIRE_API std::string_view name(DType dtype);                           // "bf16"
QUIRE_API std::optional<DType> dtype_from_name(std::string_view text);  // the inverse of name()

}  // namespace quire
