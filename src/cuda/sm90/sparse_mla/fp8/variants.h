// SPDX-License-Identifier: Apache-2.0
// Every compiled kernel for e4m3 rows and few heads (variants/few_heads.cu).
#pragma once

#include "cuda/sm90/sparse_mla/fp8/config.h"

namespace quire::cuda::sm90::sparse_mla {

// Half as many sums as with 32 heads; who gathers has more than enough in 88.
struct SparseFp8Heads16 {
  static constexpr Fp8Config kConfig{.heads = 16, .attend_registers = 208, .gather_registers = 88};
};
struct SparseFp8Heads32 {
  static constexpr Fp8Config kConfig{.heads = 32};
};

}  // namespace quire::cuda::sm90::sparse_mla
