// SPDX-License-Identifier: Apache-2.0
// Which tile kernel a problem gets, and how it is launched: pure functions of sizes.
#pragma once

#include <string>

#include "cuda/sm90/fused_qkv_matmul/variant_table.h"
#include "quire/ops/fused_qkv_matmul.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

struct TileShape {
  std::int64_t tokens = 0;
  std::int64_t columns = 0;
  DType dtype = DType::bf16;
  Scaling scaling = Scaling::none;
  bool allow_fast_accum = false;
  int granule = 0;  // columns that share a scale in K and V; 0: they become numbers
};

struct TilePlan {
  const TileVariant* variant = nullptr;
  TileGrid grid{};  // of clusters
  TailTiles tail{};
  int box_tokens = 0;  // rows of x that one copy brings
  int blocks = 0;
  bool reads_weight_once = false;  // from memory
};

// Whether Q, or numbers in the rows of the cache, are of this type.
bool has_results_of(DType dtype, DType out_dtype, const RowFormat& format);
// Empty, or why the tile kernels do not take the problem.
std::string refuse_tiles(const FusedQkvProblem& problem);
// The variant whose busiest multiprocessor has the least to do.
// What the choice of a variant depends on.
TileShape tile_shape(const FusedQkvProblem& problem);
TilePlan plan_tiles(const TileShape& shape, int num_sms);

}  // namespace quire::cuda::sm90::fused_qkv_matmul
