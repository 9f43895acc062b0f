// SPDX-License-Identifier: Apache-2.0
// DLTensor as a TensorView, and back.
#include <cstddef>
#include <limits>

#include "reader.h"

namespace quire::c {
namespace {

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  DType dtype;
};

constexpr DataType kDataTypes[] = {
    {QUIRE_DL_FLOAT, 32, DType::f32},
    {QUIRE_DL_FLOAT, 16, DType::f16},
    {QUIRE_DL_BFLOAT, 16, DType::bf16},
    {QUIRE_DL_FP8_E4M3, 8, DType::fp8_e4m3},
    {QUIRE_DL_FP8_E5M2, 8, DType::fp8_e5m2},
    {QUIRE_DL_FP8_E8M0, 8, DType::e8m0},
    {QUIRE_DL_INT, 8, DType::i8},
    {QUIRE_DL_INT, 4, DType::i4},
    {QUIRE_DL_UINT, 4, DType::u4},
    {QUIRE_DL_UINT, 8, DType::u8},
    {QUIRE_DL_INT, 32, DType::i32},
    {QUIRE_DL_UINT, 32, DType::u32},
    {QUIRE_DL_INT, 64, DType::i64},
    {QUIRE_DL_BOOL, 8, DType::u8},
};

std::optional<DType> dtype_of(DLDataType type) {
  if (type.lanes != 1) return std::nullopt;
  for (const DataType& known : kDataTypes) {
    if (known.code == type.code && known.bits == type.bits) return known.dtype;
  }
  return std::nullopt;
}

std::string describe(DLDataType type) {
  return "DLPack code " + std::to_string(type.code) + " of " + std::to_string(type.bits) +
         " bits, " + std::to_string(type.lanes) + " lanes";
}

std::optional<Device> device_of(DLDevice device) {
  switch (static_cast<std::int32_t>(device.device_type)) {
    case QUIRE_DL_CPU:
    case QUIRE_DL_CUDA_HOST:
      return Device{DeviceKind::cpu, 0};
    case QUIRE_DL_CUDA:
    case QUIRE_DL_CUDA_MANAGED:
      return Device{DeviceKind::cuda, device.device_id};
    default:
      return std::nullopt;
  }
}

// Sizes are checked by the op, which must not be reached by an overflow.
std::int64_t saturating_product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::int64_t>::max()
                                                : product;
}

TensorView view_of(const DLTensor& given, DType dtype, Device device) {
  TensorView view;
  auto* data = static_cast<std::byte*>(given.data);
  view.data = data == nullptr ? nullptr : data + given.byte_offset;
  view.dtype = dtype;
  view.rank = given.ndim;
  view.device = device;
  std::int64_t dense_stride = 1;
  for (int d = view.rank - 1; d >= 0; --d) {
    view.shape[d] = given.shape[d];
    view.strides[d] = given.strides != nullptr ? given.strides[d] : dense_stride;
    dense_stride = saturating_product(dense_stride, given.shape[d]);
  }
  // Strides without elements mean nothing, and producers set them as they like.
  if (dense_stride != 0) return view;
  return TensorView::contiguous(view.data, view.dtype, view.dims(), view.device);
}

std::string joined(std::string_view argument, std::string_view field) {
  std::string name(argument);
  return field.empty() ? name : name.append(".").append(field);
}

}  // namespace

TensorView Reader::tensor(std::string_view argument, const DLTensor* given,
                          std::string_view field) const {
  const auto refuse = [&](ErrorCode code, std::string expected, std::string actual) {
    throw Error(code, std::string(op_), joined(argument, field), std::move(expected),
                std::move(actual));
  };
  if (given == nullptr) refuse(ErrorCode::invalid_value, "a DLTensor", "NULL");
  const std::optional<DType> dtype = dtype_of(given->dtype);
  if (!dtype) {
    refuse(ErrorCode::invalid_type,
           "float32, float16, bfloat16, float8_e4m3fn, float8_e5m2, int8, uint8, int32, uint32, "
           "int64, bool, int4 or uint4",
           describe(given->dtype));
  }
  const std::optional<Device> device = device_of(given->device);
  if (!device) {
    refuse(ErrorCode::invalid_type, "a tensor on cpu or cuda",
           "DLPack device type " + std::to_string(given->device.device_type));
  }
  if (given->ndim < 0 || given->ndim > kMaxRank) {
    refuse(ErrorCode::invalid_value,
           "a tensor of at most " + std::to_string(kMaxRank) + " dimensions",
           std::to_string(given->ndim));
  }
  if (given->ndim > 0 && given->shape == nullptr) {
    refuse(ErrorCode::invalid_value, "a DLTensor with a shape", "NULL");
  }
  return view_of(*given, *dtype, *device);
}

std::optional<TensorView> Reader::optional_tensor(std::string_view argument, const DLTensor* given,
                                                  std::string_view field) const {
  if (given == nullptr) return std::nullopt;
  return tensor(argument, given, field);
}

TensorView Reader::indices(std::string_view argument, const DLTensor* given,
                           std::string_view field) const {
  TensorView view = tensor(argument, given, field);
  if (view.dtype == DType::i32) view.dtype = DType::u32;
  return view;
}

std::optional<TensorView> Reader::optional_indices(std::string_view argument, const DLTensor* given,
                                                   std::string_view field) const {
  if (given == nullptr) return std::nullopt;
  return indices(argument, given, field);
}

void write_tensor(const TensorView& view, DLDevice device, DLTensor& out) {
  out.data = view.data;
  out.device = device;
  out.ndim = view.rank;
  out.byte_offset = 0;
  for (const DataType& known : kDataTypes) {
    if (known.dtype != view.dtype) continue;
    out.dtype = {known.code, known.bits, 1};
    break;
  }
  for (int d = 0; d < view.rank; ++d) {
    out.shape[d] = view.shape[d];
    out.strides[d] = view.strides[d];
  }
}

}  // namespace quire::c
