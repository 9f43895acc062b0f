// SPDX-License-Identifier: Apache-2.0
// Every compiled sparse_mla kernel: one file in variants/ for each kind of rows.
#pragma once

#include "cuda/sm90/sparse_mla/config.h"

namespace quire::cuda::sm90::sparse_mla {

struct SparseBf16 {
  static constexpr SparseConfig kConfig{.rows = RowKind::bf16};
};
// Tiles of 32 keys leave room for the bytes of two more tiles on their way.
struct SparseFp8 {
  static constexpr SparseConfig kConfig{.rows = RowKind::fp8,
                                        .keys = 32,
                                        .stages = 3,
                                        .rope_stages = 2,
                                        .raw_stages = 2,
                                        .score_registers = 200,
                                        .sum_registers = 168,
                                        .gather_registers = 136};
};
// 128 heads: two blocks, which decode for each other.
struct SparseFp8Pair {
  static constexpr SparseConfig kConfig{.rows = RowKind::fp8, .blocks = 2};
};

// Every compiled kernel for e4m3 rows and few heads (src/cuda/variants.cmake).

// Half as many sums as with 32 heads; who gathers has more than enough in 88.
struct SparseFp8Heads16 {
  static constexpr Fp8Config kConfig{.heads = 16, .attend_registers = 208, .gather_registers = 88};
};
struct SparseFp8Heads32 {
  static constexpr Fp8Config kConfig{.heads = 32};
};

}  // namespace quire::cuda::sm90::sparse_mla
