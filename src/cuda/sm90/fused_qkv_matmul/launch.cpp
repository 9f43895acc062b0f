// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/fused_qkv_matmul/launch.h"

#include "cuda/common/matmul/deferred_rows.h"
#include "cuda/common/matmul/params.h"
#include "cuda/common/mma/row_order.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/tensor_map.h"
#include "cuda/sm90/fused_qkv_matmul/outputs.h"
#include "cuda/sm90/fused_qkv_matmul/plan_tiles.h"

namespace quire::cuda::sm90::fused_qkv_matmul {
namespace {

// Of K, whose weights are on their way before the kernel in front has ended. A ring full of them would be in the way of
// the tokens.
constexpr int kEarlyBlocks = 2;

// Numbers of f32 are rounded on their way: the tensor core would cut them off.
TensorMap operand_map(const TileDescriptor& tile, void* base) {
  return tile.dtype == DType::f32 ? encode_tf32_map(tile, base) : encode_tensor_map(tile, base);
}

// For tiles of so many columns.
TileDescriptor weight_tile(const TensorView& weight, const TileConfig& config, int columns) {
  // Where both halves of 256 bytes are sent for at the same time, L2 need not bring the second one by itself.
  const L2Promotion promotion = config.blocks_sent > 1 ? L2Promotion::b128 : L2Promotion::b256;
  return make_quad_ordered_tile(
      row_matrix_of(weight), {.box_groups = config.box_groups(columns), .l2_promotion = promotion});
}

// `waits`: K and V rows are stored afterwards, from the workspace.
void run_tiles(const Projection& args, const Context& context, const TilePlan& plan, int granule,
               bool waits) {
  auto* rows = static_cast<float*>(context.workspace);
  const TileConfig& config = plan.variant->config;
  const auto weight_map = [&](int columns) {
    return operand_map(weight_tile(args.weight.data, config, columns), args.weight.data.data);
  };
  const TileParams params{
      .x = operand_map(row_tile(args.x, plan.box_tokens), args.x.data),
      .weight = weight_map(config.tile_n),
      .k_blocks = blocks_of_k(args.x),
      .box_tokens = plan.box_tokens,
      .grid = plan.grid,
      .weight_is_read_once = plan.reads_weight_once,
      .early_blocks = context.overlaps_previous ? kEarlyBlocks : 0,
      .scales = make_scales(args),
      .outputs = waits ? deferred_outputs(make_outputs(args), rows) : make_outputs(args),
      .codes = granule > 0 ? make_codes(args) : KvCodes{},
      .tail = plan.tail,
      .tail_weight = plan.tail.rows > 0 ? weight_map(config.tail_n) : TensorMap{},
  };
  plan.variant->launch(
      params, {.blocks = plan.blocks, .stream = static_cast<cudaStream_t>(context.stream)});
  if (waits) store_deferred_rows(args, context, rows);
}

class TileKernel final : public Kernel<Projection> {
 public:
  explicit TileKernel(const FusedQkvProblem& problem)
      : granule_(tile_shape(problem).granule),
        waits_(granule_ == 0 && !holds_plain_floats(problem.cache.row_format)),
        workspace_bytes_(waits_ ? deferred_rows_bytes(problem) : 0) {
    const TileShape shape = tile_shape(problem);
    if (shape.tokens > 0 && shape.columns > 0)
      plan_ = plan_tiles(shape, num_sms(problem.device.index));
  }

  // K and V rows that are not stored as they are computed wait in fp32.
  std::int64_t workspace_bytes() const override { return workspace_bytes_; }

  Choices choices() const override {
    if (plan_.variant == nullptr) return {};
    return {{"kernel", std::string(plan_.variant->name)}, {"blocks", std::to_string(plan_.blocks)}};
  }

  void run(const Projection& args, const Context& context) const override {
    if (plan_.variant != nullptr) run_tiles(args, context, plan_, granule_, waits_);
  }

 private:
  int granule_;
  bool waits_;
  std::int64_t workspace_bytes_;
  TilePlan plan_{};  // without a variant: no tokens, or no columns
};

}  // namespace

std::string refuse(const FusedQkvProblem& problem) {
  const std::string reason = refuse_unless_sm90(problem.device);
  if (!problem.cache.values_match_keys) return "V's rows are not as far apart as K's";
  return reason.empty() ? refuse_tiles(problem) : reason;
}

KernelPtr<Projection> prepare_tiles(const FusedQkvProblem& problem) {
  return std::make_unique<const TileKernel>(problem);
}

}  // namespace quire::cuda::sm90::fused_qkv_matmul
