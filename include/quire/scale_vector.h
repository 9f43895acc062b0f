// SPDX-License-Identifier: Apache-2.0
// Quantization scales as the arithmetic uses them: f32, whatever their storage.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/dtype.h"
#include "quire/float_format.h"
#include "quire/host_device.h"

namespace quire {

template <int kWidth> struct ScaleVector {
  float values[kWidth];

  QUIRE_HOST_DEVICE constexpr float operator[](int index) const { return values[index]; }
};

// Every scale type widens to f32 exactly. Addresses are aligned to the element.
template <DType kDtype> QUIRE_HOST_DEVICE float load_scale_value(const std::byte* address) {
  static_assert(is_float(kDtype), "load_scale: scales are floating-point numbers");
  if constexpr (kDtype == DType::f32) {
    float value;
    __builtin_memcpy(&value, __builtin_assume_aligned(address, sizeof value), sizeof value);
    return value;
  } else if constexpr (is_half(kDtype)) {
    std::uint16_t code;
    __builtin_memcpy(&code, __builtin_assume_aligned(address, sizeof code), sizeof code);
    constexpr FloatFormat kFormat = kDtype == DType::f16 ? kFloat16 : kBFloat16;
    return static_cast<float>(decode_float<kFormat>(code));
  } else {
    constexpr FloatFormat kFormat = kDtype == DType::fp8_e4m3 ? kFp8E4M3 : kFp8E5M2;
    return static_cast<float>(decode_float<kFormat>(static_cast<std::uint32_t>(*address)));
  }
}

// kWidth scales at stride_bytes, of which `available` exist: the others, and all of a null address,
// are 0.
template <DType kDtype, int kWidth>
QUIRE_HOST_DEVICE ScaleVector<kWidth> load_scale_vector(const std::byte* first,
                                                        std::int64_t stride_bytes,
                                                        std::int32_t available) {
  ScaleVector<kWidth> scales{};
  if (first == nullptr) return scales;
  for (int i = 0; i < kWidth && i < available; ++i) {
    scales.values[i] = load_scale_value<kDtype>(first + i * stride_bytes);
  }
  return scales;
}

// What an operand without scales answers.
template <int kWidth> QUIRE_HOST_DEVICE constexpr ScaleVector<kWidth> unit_scales() {
  ScaleVector<kWidth> scales{};
  for (float& value : scales.values) value = 1.0f;
  return scales;
}

}  // namespace quire
