// SPDX-License-Identifier: Apache-2.0
#include "cpu/rows/conversion_kernels.h"
#include "cpu/simd/rows_encode.h"

namespace quire::cpu {
namespace QUIRE_CPU_TARGET {
namespace {

void widen(DType dtype, const std::byte* codes, std::int64_t count, float* values) {
  widen_row(dtype, codes, count, values);
}

void narrow(DType dtype, const float* values, std::int64_t count, std::byte* codes) {
  on_type(dtype, [&](auto to) {
    round_row<DType::f32, decltype(to)::kValue>(reinterpret_cast<const std::byte*>(values), count,
                                                codes);
  });
}

void quantize(DType dtype, const float* values, std::int64_t count, float scale, std::byte* codes) {
  on_type(dtype, [&](auto to) {
    quantize_row<DType::f32, decltype(to)::kValue>(reinterpret_cast<const std::byte*>(values),
                                                   count, scale, codes);
  });
}

constexpr ConversionKernels kConversionKernels{
    .widen = widen, .narrow = narrow, .quantize = quantize};

}  // namespace
}  // namespace QUIRE_CPU_TARGET

const ConversionKernels& conversion_kernels(TargetTag<Target::QUIRE_CPU_TARGET>) {
  return QUIRE_CPU_TARGET::kConversionKernels;
}

}  // namespace quire::cpu
