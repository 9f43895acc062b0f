// SPDX-License-Identifier: Apache-2.0
// The part of the DLPack C ABI (versions 0.8 to 1.x) that a consumer of tensors needs.
#pragma once

#include <cstdint>

namespace quire::python::dlpack {

enum class DeviceType : std::int32_t {
  cpu = 1,
  cuda = 2,
  cuda_host = 3,  // pinned host memory
  cuda_managed = 13,
};

enum class TypeCode : std::uint8_t {
  int_ = 0,
  uint_ = 1,
  float_ = 2,
  bfloat = 4,
  bool_ = 6,
  float8_e4m3fn = 10,
  float8_e5m2 = 12,
  float8_e8m0fnu = 14,
};

struct Device {
  std::int32_t type;
  std::int32_t id;
};

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // elements; null: row-major without gaps
  std::uint64_t byte_offset;
};

// Capsule "dltensor".
struct ManagedTensor {
  Tensor tensor;
  void* manager_context;
  void (*deleter)(ManagedTensor*);
};

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

inline constexpr Version kVersion{1, 1};  // the newest whose type codes and flags are read here
inline constexpr std::uint64_t kFlagReadOnly = 1u << 0;
inline constexpr std::uint64_t kFlagSubbytePadded = 1u << 2;

// Capsule "dltensor_versioned".
struct ManagedTensorVersioned {
  Version version;
  void* manager_context;
  void (*deleter)(ManagedTensorVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};

// Capsule "dlpack_exchange_api", the attribute __dlpack_c_exchange_api__ of a tensor class (DLPack 1.2 on). Functions
// return 0, or set Python's error; none of them orders streams.
struct ExchangeApi {
  Version version;
  const void* previous;
  int (*allocate)(Tensor* prototype, ManagedTensorVersioned** out, void* error_context,
                  void (*set_error)(void* error_context, const char* kind, const char* message));
  int (*managed_tensor_from)(void* object, ManagedTensorVersioned** out);
  int (*object_from)(ManagedTensorVersioned* tensor, void** out_object);
  int (*tensor_from)(void* object,
                     Tensor* out);  // a view that lives as long as the object; may be null
  int (*current_work_stream)(std::int32_t device_type, std::int32_t device_id, void** out_stream);
};

}  // namespace quire::python::dlpack
