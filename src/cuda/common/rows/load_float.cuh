// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "quire/dtype.h"

namespace quire::cuda {

// Element `index` of an array of f32, f16 or bf16, which no kernel writes meanwhile.
__device__ inline float load_float(const std::byte* from, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::f32:
      return __ldg(reinterpret_cast<const float*>(from) + index);
    case DType::bf16:
      return __bfloat162float(__ldg(reinterpret_cast<const __nv_bfloat16*>(from) + index));
    default:
      return __half2float(__ldg(reinterpret_cast<const __half*>(from) + index));
  }
}

}  // namespace quire::cuda
