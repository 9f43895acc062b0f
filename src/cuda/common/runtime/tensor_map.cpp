// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/runtime/tensor_map.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#include <cstring>
#include <string>

#include "cuda/common/runtime/driver_function.h"
#include "quire/error.h"

namespace quire::cuda {
namespace {

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
static_assert(alignof(TensorMap) >= alignof(CUtensorMap));

PFN_cuTensorMapEncodeTiled_v12000 find_encoder() {
  const auto encoder =
      driver_function<PFN_cuTensorMapEncodeTiled_v12000>("cuTensorMapEncodeTiled", 12000);
  if (encoder == nullptr) {
    throw Error(ErrorCode::runtime, "encode_tensor_map", "driver", "12.0 or newer", "an older one");
  }
  return encoder;
}

CUtensorMapDataType data_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case DType::f16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::bf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DType::i32:
      return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case DType::u32:
      return CU_TENSOR_MAP_DATA_TYPE_UINT32;
    case DType::i64:
      return CU_TENSOR_MAP_DATA_TYPE_INT64;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;  // 8-bit types are moved, not read; 4-bit ones are
                                             // refused before
  }
}

CUtensorMapSwizzle swizzle_mode(Swizzle swizzle) {
  switch (swizzle) {
    case Swizzle::none:
      return CU_TENSOR_MAP_SWIZZLE_NONE;
    case Swizzle::b32:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    case Swizzle::b64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case Swizzle::b128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
  }
  return CU_TENSOR_MAP_SWIZZLE_NONE;
}

CUtensorMapL2promotion l2_promotion_mode(L2Promotion promotion) {
  switch (promotion) {
    case L2Promotion::none:
      return CU_TENSOR_MAP_L2_PROMOTION_NONE;
    case L2Promotion::b64:
      return CU_TENSOR_MAP_L2_PROMOTION_L2_64B;
    case L2Promotion::b128:
      return CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
    case L2Promotion::b256:
      return CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
  }
  return CU_TENSOR_MAP_L2_PROMOTION_NONE;
}

template <typename To, std::size_t kSize, typename From>
std::array<To, kSize> convert(const std::array<From, kSize>& from) {
  std::array<To, kSize> to{};
  for (std::size_t i = 0; i < kSize; ++i) to[i] = static_cast<To>(from[i]);
  return to;
}

// The stride of a dimension of one element is never used, and a view of one row may have any. The driver wants multiples
// of 16 bytes all the same.
TileDescriptor with_aligned_strides(TileDescriptor descriptor) {
  constexpr std::int64_t kUnit = 16;
  for (std::size_t i = 0; i + 1 < static_cast<std::size_t>(descriptor.rank); ++i) {
    std::int64_t& stride = descriptor.strides_bytes[i];
    if (descriptor.dims[i + 1] == 1 && (stride < 0 || stride % kUnit != 0)) stride = kUnit;
  }
  return descriptor;
}

TensorMap encode(const TileDescriptor& given, CUtensorMapDataType type, void* base) {
  const TileDescriptor descriptor = with_aligned_strides(given);
  validate_descriptor(descriptor, reinterpret_cast<std::uintptr_t>(base));
  static const PFN_cuTensorMapEncodeTiled_v12000 encoder = find_encoder();
  const auto dims = convert<cuuint64_t>(descriptor.dims);
  const auto strides = convert<cuuint64_t>(descriptor.strides_bytes);
  const auto box = convert<cuuint32_t>(descriptor.box);
  const auto element_strides = convert<cuuint32_t>(descriptor.element_strides);
  CUtensorMap encoded{};
  const CUresult status =
      encoder(&encoded, type, static_cast<cuuint32_t>(descriptor.rank),
              static_cast<std::byte*>(base) + descriptor.base_offset_bytes, dims.data(),
              strides.data(), box.data(), element_strides.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
              swizzle_mode(descriptor.swizzle), l2_promotion_mode(descriptor.l2_promotion),
              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw Error(ErrorCode::runtime, "encode_tensor_map", "descriptor",
                "one that the driver encodes",
                descriptor.describe() + " (CUresult " + std::to_string(status) + ")");
  }
  TensorMap map;
  std::memcpy(map.bytes.data(), &encoded, sizeof(encoded));
  return map;
}

}  // namespace

TensorMap encode_tensor_map(const TileDescriptor& descriptor, void* base) {
  return encode(descriptor, data_type(descriptor.dtype), base);
}

TensorMap encode_tf32_map(const TileDescriptor& descriptor, void* base) {
  return encode(descriptor, CU_TENSOR_MAP_DATA_TYPE_TFLOAT32, base);
}

}  // namespace quire::cuda
