// SPDX-License-Identifier: Apache-2.0
// Every compiled kernel for e4m3 rows: one file in variants/ for each.
#pragma once

#include "cuda/hopper/sparse_mla/fp8/config.h"

namespace quire::cuda::hopper {

// Up to 16, 32 and 64 heads of a token at a time.
struct SparseFp8Heads16 {
  static constexpr Fp8Config kConfig{.heads = 16, .share = Fp8Share::keys, .stages = 4};
};
struct SparseFp8Heads32 {
  static constexpr Fp8Config kConfig{.heads = 32, .share = Fp8Share::keys, .stages = 4};
};
struct SparseFp8Heads64 {
  static constexpr Fp8Config kConfig{.heads = 32, .share = Fp8Share::heads, .stages = 3};
};

}  // namespace quire::cuda::hopper
