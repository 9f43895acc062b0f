// SPDX-License-Identifier: Apache-2.0
// What the choice of a tile kernel depends on, told by a problem when it is planned and by its arguments when it runs.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/plan_tiles.h"

namespace quire::cuda::hopper {

struct Product {
  std::int64_t tokens = 0;
  std::int64_t columns = 0;
  std::int64_t q_dim = 0;
  DType x_dtype{};
  DType out_dtype{};
  RowFormat format{};
  bool is_mla = false;
  bool has_block_scales = false;
  bool allow_fast_accum = false;
};

Product product_of(const FusedQkvProblem& problem);
Product product_of(const FusedQkvArgs& args);

TileShape shape_of(const Product& product);

}  // namespace quire::cuda::hopper
