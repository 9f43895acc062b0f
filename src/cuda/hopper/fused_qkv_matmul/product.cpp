// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/fused_qkv_matmul/product.h"

#include "cuda/hopper/fused_qkv_matmul/kv_codes.h"
#include "cuda/hopper/fused_qkv_matmul/make_scales.h"

namespace quire::cuda::hopper {
namespace {

// f16 results show what the tensor cores drop from sums over 512 of K, and not what they drop from those over 128.
Scaling scaling_of(const Product& product) {
  if (!is_fp8(product.x_dtype)) return Scaling::none;
  const bool is_short =
      has_results_of(DType::f16, product.out_dtype, product.format) && !product.allow_fast_accum;
  return product.has_block_scales || is_short ? Scaling::blocks : Scaling::rows;
}

// Columns that share a scale of the tiles' own making. Products of tf32 have no such tiles: their rows wait.
int granule_of(const Product& product) {
  return product.x_dtype == DType::f32
             ? 0
             : coded_granule(product.format, product.q_dim, product.is_mla);
}

}  // namespace

Product product_of(const FusedQkvProblem& problem) {
  const RowFormat& format = problem.cache.row_format;
  const std::int64_t kv_dim = format.width() * problem.cache.num_kv_heads;
  return {.tokens = problem.ragged.tokens,
          .columns = problem.q_dim + (problem.cache.is_mla ? 1 : 2) * kv_dim,
          .q_dim = problem.q_dim,
          .x_dtype = problem.x_dtype,
          .out_dtype = problem.out_dtype,
          .format = format,
          .is_mla = problem.cache.is_mla,
          .has_block_scales = problem.has_block_scales,
          .allow_fast_accum = problem.allow_fast_accum};
}
Product product_of(const FusedQkvArgs& args) {
  const QkvScales scales = make_scales(args);
  return {.tokens = args.x.shape[0],
          .columns = args.weight.data.shape[0],
          .q_dim = args.out.shape[1],
          .x_dtype = args.x.dtype,
          .out_dtype = args.out.dtype,
          .format = args.cache.format(),
          .is_mla = args.cache.is_mla(),
          .has_block_scales = scales.x_by_block || scales.weight_by_block,
          .allow_fast_accum = args.allow_fast_accum};
}

TileShape shape_of(const Product& product) {
  return {.tokens = product.tokens,
          .columns = product.columns,
          .dtype = product.x_dtype,
          .scaling = scaling_of(product),
          .allow_fast_accum = product.allow_fast_accum,
          .granule = granule_of(product)};
}

}  // namespace quire::cuda::hopper
