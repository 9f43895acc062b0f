// SPDX-License-Identifier: Apache-2.0
// The conversions that rows are read and written with, behind function pointers: for vectors that a driver widens, and
// for tests, over every code and every middle between two codes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/runtime/target_switch.h"
#include "quire/dtype.h"

namespace quire::cpu {

struct ConversionKernels {
  void (*widen)(DType dtype, const std::byte* codes, std::int64_t count, float* values);
  // One rounding, as a row without scales has it.
  void (*narrow)(DType dtype, const float* values, std::int64_t count, std::byte* codes);
  // values / scale, rounded once.
  void (*quantize)(DType dtype, const float* values, std::int64_t count, float scale,
                   std::byte* codes);
};

const ConversionKernels& conversion_kernels(TargetTag<Target::portable>);
const ConversionKernels& conversion_kernels(TargetTag<Target::avx2>);
const ConversionKernels& conversion_kernels(TargetTag<Target::avx512>);
const ConversionKernels& conversion_kernels(TargetTag<Target::avx512_vnni>);
const ConversionKernels& conversion_kernels(TargetTag<Target::amx>);
const ConversionKernels& conversion_kernels(TargetTag<Target::neon>);
const ConversionKernels& conversion_kernels(TargetTag<Target::neon_bf16>);

inline const ConversionKernels& conversion_kernels(Target target) {
  return on_target(target,
                   [](auto tag) -> const ConversionKernels& { return conversion_kernels(tag); });
}

}  // namespace quire::cpu
