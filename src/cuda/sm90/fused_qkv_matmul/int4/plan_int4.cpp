// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/fused_qkv_matmul/int4/plan_int4.h"

#include <algorithm>

#include "cuda/common/runtime/carver.h"

namespace quire::cuda::sm90::fused_qkv_matmul {
namespace {

constexpr std::int64_t kMaxTokenTiles = 65535;  // blocks along a grid's second axis
// Warpgroups among which batch_invariant splits K: the only number that kernels for any number of tokens have.
constexpr int kInvariantKGroups = 4;

Int4Grid grid_of(const Int4Config& config, const Int4Shape& shape) {
  return {.columns = static_cast<int>(
              ceil_div(shape.columns, std::int64_t{kPanelRows} * config.row_groups)),
          .tokens = static_cast<int>(ceil_div(shape.tokens, config.tokens))};
}

// Fewer tokens than a tile waste products, more tiles than one decode every weight again.
bool takes(const Int4Config& config, const Int4Shape& shape) {
  if (shape.batch_invariant && config.k_groups != kInvariantKGroups) return false;
  return config.dtype == shape.dtype && (config.tokens >= 64 || shape.tokens <= config.tokens);
}

// Steps in a row, of all k_groups: rounds of blocks on the busiest multiprocessor.
double cost(const Int4Variant& variant, const Int4Shape& shape, int num_sms) {
  const Int4Grid grid = grid_of(variant.config, shape);
  const std::int64_t rounds = ceil_div(std::int64_t{grid.columns} * grid.tokens, num_sms);
  return static_cast<double>(rounds) / variant.config.k_groups * variant.relative_cost;
}

}  // namespace

std::string refuse_int4_tiles(const FusedQkvProblem& problem) {
  if (problem.weight_packing != WeightPacking::fragments_64) {
    return "weight is not int4 in the order that pack_weight makes";
  }
  if (problem.x_dtype != DType::bf16 && problem.x_dtype != DType::f16) {
    return "x is neither bf16 nor f16";
  }
  if (problem.has_perm) return "columns are permuted";
  if (problem.activations != Activations::exact) return "activations are rounded to int8";
  if (problem.hidden % kUnitColumns != 0) return "columns of x are not a multiple of 64";
  const std::int64_t row = problem.cache.row_format.width();
  if (problem.q_dim % 8 != 0 || row % 8 != 0) return "a head is not a multiple of 8 columns";
  if (problem.alignment % 16 != 0) return "rows are not aligned to 16 bytes";
  if (ceil_div(problem.ragged.tokens, 64) > kMaxTokenTiles) return "too many tokens for one grid";
  return "";
}

Int4Plan plan_int4(const Int4Shape& shape, int num_sms) {
  const Int4Variant* best = nullptr;
  for (const Int4Variant& variant : kInt4Variants) {
    if (!takes(variant.config, shape)) continue;
    if (best == nullptr || cost(variant, shape, num_sms) < cost(*best, shape, num_sms)) {
      best = &variant;
    }
  }
  if (best == nullptr) return {};
  return {.variant = best, .grid = grid_of(best->config, shape)};
}

}  // namespace quire::cuda::sm90::fused_qkv_matmul
