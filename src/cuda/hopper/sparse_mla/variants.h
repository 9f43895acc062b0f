// SPDX-License-Identifier: Apache-2.0
// Every compiled sparse_mla kernel: one file in variants/ for each.
#pragma once

#include "cuda/hopper/sparse_mla/config.h"

namespace quire::cuda::hopper {

struct SparseBf16 {
  static constexpr SparseConfig kConfig{.rows = RowKind::bf16};
};
struct SparseFp8 {
  static constexpr SparseConfig kConfig{.rows = RowKind::fp8};
};

}  // namespace quire::cuda::hopper
