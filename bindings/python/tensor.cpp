// SPDX-License-Identifier: Apache-2.0
#include "tensor.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "dlpack.h"
#include "quire/error.h"

namespace nb = nanobind;

namespace quire::python {
namespace {

constexpr std::string_view kKnownTypes =
    "float32, float16, bfloat16, float8_e4m3fn, float8_e5m2, int8, uint8, int32, uint32, int64 or "
    "bool";

[[noreturn]] void refuse(ErrorCode code, const Place& place, std::string_view expected,
                         std::string actual) {
  throw Error(code, place.op, place.argument, std::string(expected), std::move(actual));
}

// By the name that numpy, ml_dtypes and torch share.
std::optional<DType> dtype_from_array_name(std::string_view name) {
  static constexpr std::pair<std::string_view, DType> kNames[] = {
      {"float32", DType::f32},
      {"float16", DType::f16},
      {"bfloat16", DType::bf16},
      {"float8_e4m3fn", DType::fp8_e4m3},
      {"float8_e5m2", DType::fp8_e5m2},
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

// The producer's own name of its dtype: "float64", "torch.complex64".
std::string dtype_name(nb::handle object) {
  const nb::object dtype = nb::getattr(object, "dtype", nb::none());
  if (nb::hasattr(dtype, "name")) return nb::cast<std::string>(nb::str(dtype.attr("name")));
  return nb::cast<std::string>(nb::str(dtype));
}

std::string class_name(nb::handle object) {
  return nb::cast<std::string>(nb::str(object.type().attr("__name__")));
}

int checked_rank(std::size_t rank, const Place& place) {
  if (rank <= kMaxRank) return static_cast<int>(rank);
  refuse(ErrorCode::invalid_value, place,
         "a tensor of at most " + std::to_string(kMaxRank) + " dimensions", std::to_string(rank));
}

Device device_from_dlpack(dlpack::Device device, const Place& place) {
  switch (static_cast<dlpack::DeviceType>(device.type)) {
    case dlpack::DeviceType::cpu:
    case dlpack::DeviceType::cuda_host:
      return {DeviceKind::cpu, 0};
    case dlpack::DeviceType::cuda:
    case dlpack::DeviceType::cuda_managed:
      return {DeviceKind::cuda, device.id};
  }
  refuse(ErrorCode::invalid_type, place, "a tensor on cpu or cuda",
         "DLPack device type " + std::to_string(device.type));
}

// Tensors that need no gradient and, for fp8, bytes: torch exports both in every version.
nb::object torch_exportable(nb::handle object) {
  nb::object result = nb::borrow(object);
  if (!nb::hasattr(object, "requires_grad")) return result;
  if (nb::cast<bool>(object.attr("requires_grad"))) result = result.attr("detach")();
  if (dtype_name(object).starts_with("torch.float8")) {
    const nb::module_ torch = nb::module_::import_("torch");
    result = result.attr("view")(torch.attr("uint8"));
  }
  return result;
}

nb::object export_capsule(nb::handle object, void* stream) {
  const auto [device_type, device_id] =
      nb::cast<std::pair<std::int32_t, std::int32_t>>(object.attr("__dlpack_device__")());
  nb::dict arguments;
  if (static_cast<dlpack::DeviceType>(device_type) == dlpack::DeviceType::cuda) {
    // DLPack spells the default stream 1: its 0 is ambiguous between the two default streams.
    arguments["stream"] = stream == nullptr ? 1 : reinterpret_cast<std::intptr_t>(stream);
  }
  const nb::object producer = object.attr("__dlpack__");
  try {
    nb::dict versioned;
    versioned.update(arguments);
    versioned["max_version"] = nb::make_tuple(dlpack::kVersion.major, dlpack::kVersion.minor);
    return producer(**versioned);
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return producer(**arguments);  // a producer older than DLPack 1.0
}

}  // namespace

BorrowedTensor::BorrowedTensor(nb::handle object, Access access, const Place& place, void* stream) {
  if (!nb::hasattr(object, "__dlpack__") && !nb::hasattr(object, "__array_interface__")) {
    refuse(ErrorCode::invalid_type, place, "an array with __dlpack__", class_name(object));
  }
  try {
    borrow_dlpack(torch_exportable(object), place, stream);
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;  // an interrupt, say
    if (!error.matches(PyExc_BufferError) || !nb::hasattr(object, "__array_interface__")) {
      refuse(ErrorCode::invalid_type, place, "a tensor that its framework shares by DLPack",
             class_name(object) + ": " + nb::cast<std::string>(nb::str(error.value())));
    }
    borrow_array_interface(object, place);
  }
  if (view_.numel() ==
      0) {  // strides without elements mean nothing, and producers set them as they like
    view_ = TensorView::contiguous(view_.data, view_.dtype, view_.dims(), view_.device);
  }
  if (read_only_ && access == Access::write) {
    refuse(ErrorCode::invalid_value, place, "a writable tensor", "a read-only one");
  }
  if (dtype_name(object) == "torch.float8_e4m3fn") view_.dtype = DType::fp8_e4m3;
  if (dtype_name(object) == "torch.float8_e5m2") view_.dtype = DType::fp8_e5m2;
}

void BorrowedTensor::borrow_dlpack(nb::handle object, const Place& place, void* stream) {
  const nb::object capsule = export_capsule(object, stream);
  const dlpack::Tensor* tensor = nullptr;
  std::uint64_t flags = 0;
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned") != 0) {
    const auto* managed = static_cast<const dlpack::ManagedTensorVersioned*>(
        PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    if (managed->version.major != dlpack::kVersion.major) {
      refuse(ErrorCode::invalid_type, place, "a DLPack 1.x tensor",
             "version " + std::to_string(managed->version.major));
    }
    tensor = &managed->tensor;
    flags = managed->flags;
  } else if (PyCapsule_IsValid(capsule.ptr(), "dltensor") != 0) {
    tensor =
        &static_cast<const dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"))
             ->tensor;
  } else {
    refuse(ErrorCode::invalid_type, place, "an array with __dlpack__", class_name(capsule));
  }
  read_only_ = (flags & dlpack::kFlagReadOnly) != 0;
  const std::optional<DType> dtype = dtype_from_dlpack(tensor->dtype, flags);
  if (!dtype) refuse(ErrorCode::invalid_type, place, kKnownTypes, dtype_name(object));

  view_.data = static_cast<std::byte*>(tensor->data) + tensor->byte_offset;
  view_.dtype = *dtype;
  view_.rank = checked_rank(static_cast<std::size_t>(tensor->ndim), place);
  view_.device = device_from_dlpack(tensor->device, place);
  std::int64_t dense_stride = 1;
  for (int d = view_.rank - 1; d >= 0; --d) {
    view_.shape[d] = tensor->shape[d];
    view_.strides[d] = tensor->strides != nullptr ? tensor->strides[d] : dense_stride;
    dense_stride *= tensor->shape[d];
  }
  // Never renamed, so never consumed: when the capsule goes, its own destructor gives the memory
  // back.
  owner_ = capsule;
}

void BorrowedTensor::borrow_array_interface(nb::handle array, const Place& place) {
  const std::string name = dtype_name(array);
  const std::optional<DType> dtype = dtype_from_array_name(name);
  const bool native = nb::cast<bool>(array.attr("dtype").attr("isnative"));
  if (!dtype || !native) {
    // ml_dtypes spends a byte on each 4-bit number; Quire's are packed two per byte.
    const bool unpacked = name == "int4" || name == "uint4";
    refuse(ErrorCode::invalid_type, place,
           unpacked ? std::string_view("uint8 with two 4-bit codes per byte (quire.pack_int4)")
                    : kKnownTypes,
           native ? name : name + " of foreign byte order");
  }
  const nb::dict interface = nb::cast<nb::dict>(array.attr("__array_interface__"));
  const auto [address, read_only] = nb::cast<std::pair<std::uintptr_t, bool>>(interface["data"]);
  read_only_ = read_only;
  const auto shape = nb::cast<std::vector<std::int64_t>>(array.attr("shape"));
  const auto byte_strides = nb::cast<std::vector<std::int64_t>>(array.attr("strides"));
  const std::int64_t item_bytes = bits(*dtype) / 8;

  view_.data = reinterpret_cast<void*>(address);
  view_.dtype = *dtype;
  view_.rank = checked_rank(shape.size(), place);
  for (int d = 0; d < view_.rank; ++d) {
    if (byte_strides[d] % item_bytes != 0) {
      refuse(ErrorCode::invalid_value, place,
             "strides of whole elements (" + std::to_string(item_bytes) + " B)",
             "a stride of " + std::to_string(byte_strides[d]) + " B");
    }
    view_.shape[d] = shape[d];
    view_.strides[d] = byte_strides[d] / item_bytes;
  }
  owner_ = nb::borrow(array);
}

}  // namespace quire::python
