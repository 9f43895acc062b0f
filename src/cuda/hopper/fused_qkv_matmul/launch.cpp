// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/fused_qkv_matmul/launch.h"

#include "cuda/hopper/fused_qkv_matmul/kv_codes.h"
#include "cuda/hopper/fused_qkv_matmul/outputs.h"
#include "cuda/hopper/fused_qkv_matmul/plan_tiles.h"
#include "cuda/hopper/fused_qkv_matmul/row_tile.h"
#include "cuda/hopper/fused_qkv_matmul/side_by_side.h"
#include "cuda/hopper/fused_qkv_matmul/waiting_rows.h"
#include "cuda/hopper/tile/row_order.h"
#include "cuda/runtime/device_facts.h"
#include "cuda/runtime/tf32_map.h"

namespace quire::cuda::hopper {
namespace {

QkvScales make_scales(const FusedQkvArgs& args) {
  if (!args.input_scale.has_value() || !args.weight.scale.has_value()) return {};
  const auto stride = [](const TensorView& scale, int dim) {
    return scale.shape[dim] == 1 ? 0 : scale.strides[dim];
  };
  const auto side_by_side = [&](const TensorView& scale) {
    return stand_side_by_side(scale.as<const float>(), stride(scale, 0), stride(scale, 1),
                              scale.shape[1]);
  };
  const TensorView& x = *args.input_scale;
  const TensorView& weight = *args.weight.scale;
  // One block of K is neither here nor there: it is a row's scale, unless rows come in 128s too.
  const bool weight_by_block = weight.shape[0] != 1 && weight.shape[0] != args.weight.data.shape[0];
  return {.x = x.as<const float>(),
          .x_token_stride = stride(x, 0),
          .x_block_stride = stride(x, 1),
          .weight = weight.as<const float>(),
          .weight_row_stride = stride(weight, 0),
          .weight_block_stride = stride(weight, 1),
          .x_by_block = x.shape[1] > 1,
          .weight_by_block = weight_by_block || weight.shape[1] > 1,
          .x_side_by_side = side_by_side(x),
          .weight_side_by_side = side_by_side(weight)};
}

Scaling scaling_of(DType x_dtype, bool has_block_scales) {
  if (!is_fp8(x_dtype)) return Scaling::none;
  return has_block_scales ? Scaling::blocks : Scaling::rows;
}

// Numbers of f32 are rounded on their way: the tensor core would cut them off.
TensorMap operand_map(const TileDescriptor& tile, void* base) {
  return tile.dtype == DType::f32 ? encode_tf32_map(tile, base) : encode_tensor_map(tile, base);
}

// Columns that share a scale of the tiles' own making. Products of tf32 have no such tiles: their rows wait.
int granule_of(DType x_dtype, const RowFormat& format, std::int64_t q_dim, bool is_mla) {
  return x_dtype == DType::f32 ? 0 : coded_granule(format, q_dim, is_mla);
}
int granule_of(const FusedQkvProblem& problem) {
  return granule_of(problem.x_dtype, problem.cache.row_format, problem.q_dim, problem.cache.is_mla);
}

void run_tiles(const FusedQkvArgs& args, const Context& context, const TilePlan& plan) {
  const TensorView& weight = args.weight.data;
  const bool is_coded = plan.variant->config.kv_rows == KvRows::codes;
  const bool waits = !is_coded && !holds_plain_floats(args.cache.format());
  auto* rows = static_cast<float*>(context.workspace);
  const TileParams params{
      .x = operand_map(row_tile(args.x, plan.box_tokens), args.x.data),
      .weight = operand_map(quad_ordered_tile(weight.dtype, weight.shape[0], weight.shape[1],
                                              bytes_for(weight.dtype, weight.strides[0]),
                                              plan.variant->config.box_groups()),
                            weight.data),
      .k_blocks = blocks_of_k(args.x),
      .box_tokens = plan.box_tokens,
      .grid = plan.grid,
      .weight_is_read_once = plan.reads_weight_once,
      .scales = make_scales(args),
      .outputs = waits ? waiting_outputs(make_outputs(args), rows) : make_outputs(args),
      .half_columns = plan.half_columns,
      .codes = is_coded ? make_codes(args) : KvCodes{},
  };
  plan.variant->launch(
      params, {.blocks = plan.blocks, .stream = static_cast<cudaStream_t>(context.stream)});
  if (waits) store_waiting_rows(args, context, rows);
}

}  // namespace

std::string refuse(const FusedQkvProblem& problem) {
  const std::string reason = refuse_hopper(problem.device);
  return reason.empty() ? refuse_tiles(problem) : reason;
}

std::vector<std::pair<std::string, std::string>> choices(const FusedQkvProblem& problem) {
  const std::int64_t kv_dim = problem.cache.row_format.width() * problem.cache.num_kv_heads;
  const TileShape shape{.tokens = problem.ragged.tokens,
                        .columns = problem.q_dim + (problem.cache.is_mla ? 1 : 2) * kv_dim,
                        .dtype = problem.x_dtype,
                        .scaling = scaling_of(problem.x_dtype, problem.has_block_scales),
                        .allow_fast_accum = problem.allow_fast_accum,
                        .granule = granule_of(problem)};
  if (shape.tokens == 0) return {};
  const TilePlan plan = plan_tiles(shape, num_sms(problem.device.index));
  return {{"kernel", std::string(plan.variant->name)}, {"blocks", std::to_string(plan.blocks)}};
}

std::int64_t tile_workspace_bytes(const FusedQkvProblem& problem) {
  const bool waits = !holds_plain_floats(problem.cache.row_format) && granule_of(problem) == 0;
  return waits ? waiting_rows_bytes(problem) : 0;
}

void fused_qkv_matmul(const FusedQkvArgs& args, const Context& context) {
  const QkvScales scales = make_scales(args);
  const TileShape shape{
      .tokens = args.x.shape[0],
      .columns = args.weight.data.shape[0],
      .dtype = args.x.dtype,
      .scaling = scaling_of(args.x.dtype, scales.x_by_block || scales.weight_by_block),
      .allow_fast_accum = args.allow_fast_accum,
      .granule =
          granule_of(args.x.dtype, args.cache.format(), args.out.shape[1], args.cache.is_mla())};
  if (shape.tokens == 0) return;
  run_tiles(args, context, plan_tiles(shape, num_sms(args.x.device.index)));
}

}  // namespace quire::cuda::hopper
