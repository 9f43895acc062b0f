// SPDX-License-Identifier: Apache-2.0
#include "quire/dtype.h"

namespace quire {

std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::fp8_e4m3:
      return "fp8_e4m3";
    case DType::fp8_e5m2:
      return "fp8_e5m2";
    case DType::i8:
      return "i8";
    case DType::i4:
      return "i4";
    case DType::u4:
      return "u4";
    case DType::u8:
      return "u8";
    case DType::i32:
      return "i32";
    case DType::u32:
      return "u32";
    case DType::i64:
      return "i64";
    case DType::e8m0:
      return "e8m0";
  }
  return "unknown";
}

std::optional<DType> dtype_from_name(std::string_view text) {
  for (const DType dtype : kAllDTypes) {
    if (name(dtype) == text) return dtype;
  }
  return std::nullopt;
}

}  // namespace quire
