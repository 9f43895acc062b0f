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
#include "scalars.h"
#include "tensor_dtype.h"

namespace nb = nanobind;

namespace quire::python {
namespace {

constexpr std::string_view kKnownTypes =
    "float32, float16, bfloat16, float8_e4m3fn, float8_e5m2, float8_e8m0fnu, int8, uint8, int32, "
    "uint32, int64 or bool";

[[noreturn]] void refuse(ErrorCode code, const Place& place, std::string_view expected,
                         std::string actual) {
  throw Error(code, std::string(place.op), place.name(), std::string(expected), std::move(actual));
}

// The producer's own name of its dtype: "float64", "torch.complex64".
std::string dtype_name(nb::handle object) {
  const nb::object dtype = nb::getattr(object, "dtype", nb::none());
  const nb::object name = nb::getattr(dtype, "name", dtype);
  return text_of(nb::str(name)).value_or("an unnamed dtype");
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

// torch's fp8 dtypes that Quire computes with. There are others of the same size and other meaning.
std::optional<DType> torch_fp8(nb::handle object) {
  const std::string name = dtype_name(object);
  if (name == "torch.float8_e4m3fn") return DType::fp8_e4m3;
  if (name == "torch.float8_e5m2") return DType::fp8_e5m2;
  if (name == "torch.float8_e8m0fnu") return DType::e8m0;
  return std::nullopt;
}

// What a tensor class offers to C, or null. Looked up once for each class of a few.
const dlpack::ExchangeApi* exchange_api(nb::handle object) {
  struct Known {
    PyObject* type;
    const dlpack::ExchangeApi* api;
  };
  constexpr std::size_t kRemembered = 16;
  static std::vector<Known> known;
  PyObject* type = object.type().ptr();
  for (const Known& entry : known) {
    if (entry.type == type) return entry.api;
  }
  const nb::object capsule =
      nb::getattr(nb::handle(type), interned("__dlpack_c_exchange_api__"), nb::none());
  const dlpack::ExchangeApi* api = nullptr;
  constexpr const char* kName = "dlpack_exchange_api";
  if (PyCapsule_IsValid(capsule.ptr(), kName) != 0) {
    api = static_cast<const dlpack::ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), kName));
    if (api->version.major != dlpack::kVersion.major || api->tensor_from == nullptr) api = nullptr;
  }
  if (known.size() < kRemembered) known.push_back({nb::borrow(type).release().ptr(), api});
  return api;
}

// Whether what is queued on the producer's stream comes before what Quire queues on `stream`.
bool works_on(const dlpack::ExchangeApi& api, dlpack::Device device, const void* stream) {
  void* current = nullptr;
  if (api.current_work_stream == nullptr) return false;
  if (api.current_work_stream(device.type, device.id, &current) != 0) {
    PyErr_Clear();
    return false;
  }
  return current == stream;
}

// An entry of a dict, if it is there and of that type.
template <typename T> bool read_item(nb::handle dict, const char* key, T& value) {
  const nb::object item = dict.attr("get")(key);
  return nb::try_cast(item, value);
}

bool is_true(nb::handle object) {
  return object.is(nb::handle(Py_True));
}

// Tensors that need no gradient and, for fp8, bytes: torch exports both in every version.
nb::object torch_exportable(nb::handle object) {
  nb::object result = nb::borrow(object);
  if (!nb::hasattr(object, "requires_grad")) return result;
  if (is_true(object.attr("requires_grad"))) result = result.attr("detach")();
  if (torch_fp8(object).has_value()) {
    const nb::module_ torch = nb::module_::import_("torch");
    result = result.attr("view")(torch.attr("uint8"));
  }
  return result;
}

nb::object export_capsule(nb::handle object, const Place& place, void* stream) {
  std::pair<std::int32_t, std::int32_t> device;
  const nb::object given = object.attr("__dlpack_device__")();
  if (!nb::try_cast(given, device)) {
    refuse(ErrorCode::invalid_type, place, "an array whose __dlpack_device__ is a pair of numbers",
           class_name(object));
  }
  const std::int32_t device_type = device.first;
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

BorrowedTensor::BorrowedTensor(nb::handle object, Access access, const Place& place, void* stream)
    : access_(access), source_(nb::borrow(object)) {
  if (borrow_exchanged(object, place, stream)) {
    // Only parts of complex numbers have it, of which torch has none with other parts.
    const bool may_be_negated = view_.dtype == DType::f32 || view_.dtype == DType::f16;
    if (may_be_negated) refuse_pending_sign(object, access, place);
  } else if (!borrow_buffer(object)) {
    refuse_pending_sign(object, access, place);
    borrow_slowly(object, place, stream);
  }
  if (view_.numel() ==
      0) {  // strides without elements mean nothing, and producers set them as they like
    view_ = TensorView::contiguous(view_.data, view_.dtype, view_.dims(), view_.device);
  }
  if (read_only_ && access == Access::write) {
    refuse(ErrorCode::invalid_value, place, "a writable tensor", "a read-only one");
  }
}

namespace {

// What an object says about its memory, while this lives. By the calls that modules for all interpreters may use.
class HeldBuffer {
 public:
  explicit HeldBuffer(const nb::object& object)
      : is_held_(PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_RECORDS_RO) == 0) {
    if (!is_held_) PyErr_Clear();
  }
  ~HeldBuffer() {
    if (is_held_) PyBuffer_Release(&buffer_);
  }
  HeldBuffer(const HeldBuffer&) = delete;
  HeldBuffer& operator=(const HeldBuffer&) = delete;

  bool is_held() const { return is_held_; }
  const Py_buffer& buffer() const { return buffer_; }

 private:
  Py_buffer buffer_{};
  bool is_held_;
};

}  // namespace

bool BorrowedTensor::borrow_exchanged(nb::handle object, const Place& place, void* stream) {
  const dlpack::ExchangeApi* api = exchange_api(object);
  if (api == nullptr) return false;
  dlpack::Tensor tensor;
  if (api->tensor_from(object.ptr(), &tensor) !=
      0) {  // the capsule's error is the one with the reason
    PyErr_Clear();
    return false;
  }
  const bool is_on_gpu =
      static_cast<dlpack::DeviceType>(tensor.device.type) == dlpack::DeviceType::cuda;
  if (is_on_gpu && !works_on(*api, tensor.device, stream)) return false;
  read(tensor, 0, object, place);
  owner_ = nb::borrow(object);
  return true;
}

bool BorrowedTensor::borrow_buffer(nb::handle array) {
  static const nb::object& numpy_array =
      *new nb::object(nb::module_::import_("numpy").attr("ndarray"));  // never destroyed
  if (!array.type().is(numpy_array)) return false;
  const nb::object memory = nb::steal(PyMemoryView_FromObject(array.ptr()));
  if (!memory.is_valid()) {  // ml_dtypes have no buffers
    PyErr_Clear();
    return false;
  }
  const HeldBuffer held(memory);
  if (!held.is_held()) return false;
  const Py_buffer& buffer = held.buffer();
  const std::optional<DType> dtype = dtype_from_buffer(buffer);
  if (!dtype || buffer.ndim > kMaxRank) return false;
  for (int d = 0; d < buffer.ndim; ++d) {
    if (buffer.strides[d] % buffer.itemsize != 0) return false;
    view_.shape[d] = buffer.shape[d];
    view_.strides[d] = buffer.strides[d] / buffer.itemsize;
  }
  view_.data = buffer.buf;
  view_.dtype = *dtype;
  view_.rank = buffer.ndim;
  read_only_ = buffer.readonly != 0;
  owner_ = memory;
  return true;
}

void BorrowedTensor::borrow_slowly(nb::handle object, const Place& place, void* stream) {
  if (!nb::hasattr(object, "__dlpack__") && !nb::hasattr(object, "__array_interface__")) {
    refuse(ErrorCode::invalid_type, place, "an array with __dlpack__", class_name(object));
  }
  try {
    borrow_capsule(torch_exportable(object), place, stream);
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;  // an interrupt, say
    if (!error.matches(PyExc_BufferError) || !nb::hasattr(object, "__array_interface__")) {
      refuse(ErrorCode::invalid_type, place, "a tensor that its framework shares by DLPack",
             class_name(object) + ": " + nb::cast<std::string>(nb::str(error.value())));
    }
    borrow_array_interface(object, place);
  }
  if (const std::optional<DType> fp8 = torch_fp8(object)) view_.dtype = *fp8;
}

// torch negates lazily, the imaginary part of a conjugate say, and DLPack knows nothing of it. Nothing
// is copied here, so that the caller has to.
void BorrowedTensor::refuse_pending_sign(nb::handle object, Access access, const Place& place) {
  const nb::object is_neg = nb::getattr(object, interned("is_neg"), nb::none());
  if (is_neg.is_none() || !is_true(is_neg())) return;
  if (!nb::hasattr(object, "resolve_neg")) return;
  refuse(ErrorCode::invalid_value, place,
         access == Access::write ? "an output without torch's negative bit"
                                 : "without torch's negative bit (resolve_neg() applies it)",
         "a view that torch would negate on reading");
}

void BorrowedTensor::borrow_capsule(nb::handle object, const Place& place, void* stream) {
  const nb::object capsule = export_capsule(object, place, stream);
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
  read(*tensor, flags, object, place);
  // Never renamed, so never consumed: when the capsule goes, its own destructor gives the memory
  // back.
  owner_ = capsule;
}

void BorrowedTensor::read(const dlpack::Tensor& tensor, std::uint64_t flags, nb::handle object,
                          const Place& place) {
  read_only_ = (flags & dlpack::kFlagReadOnly) != 0;
  const std::optional<DType> dtype = dtype_from_dlpack(tensor.dtype, flags);
  if (!dtype) refuse(ErrorCode::invalid_type, place, kKnownTypes, dtype_name(object));

  view_.data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  view_.dtype = *dtype;
  view_.rank = checked_rank(static_cast<std::size_t>(tensor.ndim), place);
  view_.device = device_from_dlpack(tensor.device, place);
  std::int64_t dense_stride = 1;
  for (int d = view_.rank - 1; d >= 0; --d) {
    view_.shape[d] = tensor.shape[d];
    view_.strides[d] = tensor.strides != nullptr ? tensor.strides[d] : dense_stride;
    dense_stride *= tensor.shape[d];
  }
}

void BorrowedTensor::borrow_array_interface(nb::handle array, const Place& place) {
  const std::string name = dtype_name(array);
  const std::optional<DType> dtype = dtype_from_array_name(name);
  const bool native = is_true(nb::getattr(array.attr("dtype"), "isnative", nb::none()));
  if (!dtype || !native) {
    // ml_dtypes spends a byte on each 4-bit number; Quire's are packed two per byte.
    const bool unpacked = name == "int4" || name == "uint4";
    refuse(ErrorCode::invalid_type, place,
           unpacked ? std::string_view("uint8 with two 4-bit codes per byte (quire.pack_int4)")
                    : kKnownTypes,
           native ? name : name + " of foreign byte order");
  }
  std::pair<std::uintptr_t, bool> data;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> byte_strides;
  const nb::object interface = nb::getattr(array, "__array_interface__");
  const bool is_whole = nb::isinstance<nb::dict>(interface) && read_item(interface, "data", data) &&
                        nb::try_cast(nb::getattr(array, "shape", nb::none()), shape) &&
                        nb::try_cast(nb::getattr(array, "strides", nb::none()), byte_strides) &&
                        shape.size() == byte_strides.size();
  if (!is_whole) {
    refuse(ErrorCode::invalid_type, place, "an array whose __array_interface__ is numpy's",
           class_name(array));
  }
  read_only_ = data.second;
  const std::int64_t item_bytes = bits(*dtype) / 8;

  view_.data = reinterpret_cast<void*>(data.first);
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
