// SPDX-License-Identifier: Apache-2.0
#include "tensor_dtype.h"

#include <utility>

namespace quire::python {

std::optional<DType> dtype_from_array_name(std::string_view name) {
  static constexpr std::pair<std::string_view, DType> kNames[] = {
      {"float32", DType::f32},
      {"float16", DType::f16},
      {"bfloat16", DType::bf16},
      {"float8_e4m3fn", DType::fp8_e4m3},
      {"float8_e5m2", DType::fp8_e5m2},
      {"float8_e8m0fnu", DType::e8m0},
      {"int8", DType::i8},
      {"uint8", DType::u8},
      {"int32", DType::i32},
      {"uint32", DType::u32},
      {"int64", DType::i64},
      {"bool", DType::u8},
  };
  for (const auto& [known, dtype] : kNames) {
    if (known == name) return dtype;
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_dlpack(dlpack::DataType type, std::uint64_t flags) {
  using dlpack::TypeCode;
  if (type.lanes != 1) return std::nullopt;
  const auto code = static_cast<TypeCode>(type.code);
  const bool packed = (flags & dlpack::kFlagSubbytePadded) == 0;
  switch (type.bits) {
    case 64:
      if (code == TypeCode::int_) return DType::i64;
      break;
    case 32:
      if (code == TypeCode::float_) return DType::f32;
      if (code == TypeCode::int_) return DType::i32;
      if (code == TypeCode::uint_) return DType::u32;
      break;
    case 16:
      if (code == TypeCode::float_) return DType::f16;
      if (code == TypeCode::bfloat) return DType::bf16;
      break;
    case 8:
      if (code == TypeCode::float8_e4m3fn) return DType::fp8_e4m3;
      if (code == TypeCode::float8_e5m2) return DType::fp8_e5m2;
      if (code == TypeCode::float8_e8m0fnu) return DType::e8m0;
      if (code == TypeCode::int_) return DType::i8;
      if (code == TypeCode::uint_ || code == TypeCode::bool_) return DType::u8;
      break;
    case 4:
      if (code == TypeCode::int_ && packed) return DType::i4;
      if (code == TypeCode::uint_ && packed) return DType::u4;
      break;
    default:
      break;
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_buffer(const Py_buffer& buffer) {
  const std::string_view format = buffer.format == nullptr ? "B" : buffer.format;
  if (format.size() != 1) return std::nullopt;
  switch (format.front()) {
    case 'f':
      return DType::f32;
    case 'e':
      return DType::f16;
    case 'b':
      return DType::i8;
    case 'B':
    case '?':
      return DType::u8;
    case 'i':
      return DType::i32;
    case 'I':
      return DType::u32;
    case 'l':
    case 'q':
      if (buffer.itemsize == 8) return DType::i64;
      break;
    default:
      break;
  }
  return std::nullopt;
}

}  // namespace quire::python
