// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/fused_qkv_matmul/int4/launch.h"

#include "cuda/common/matmul/deferred_rows.h"
#include "cuda/common/matmul/int4/pack_order.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/device_scope.h"
#include "cuda/sm90/fused_qkv_matmul/int4/few_tokens/plan_few.h"
#include "cuda/sm90/fused_qkv_matmul/int4/plan_int4.h"
#include "cuda/sm90/fused_qkv_matmul/outputs.h"
#include "quire/tile_builders.h"

namespace quire::cuda::sm90::fused_qkv_matmul {
namespace {

// x as [blocks of 64 columns][tokens][64]: a box of several blocks is what a chunk needs.
TileDescriptor chunk_tile(const TensorView& x, int box_tokens, int blocks) {
  static_assert(swizzle_granularity(DType::bf16, Swizzle::b128) == kUnitColumns);
  return make_folded_tile(row_matrix_of(x), {.swizzle = Swizzle::b128,
                                             .box_rows = box_tokens,
                                             .fold_chunks = blocks,
                                             .heads = HeadAxis::absent,
                                             .l2_promotion = L2Promotion::b256});
}

int steps_of(std::int64_t hidden) {
  return static_cast<int>((hidden + kStepColumns - 1) / kStepColumns);
}

void run_few_tokens(const FewTokensPlan& plan, Int4Params params, const TensorView& x,
                    cudaStream_t stream) {
  params.x = encode_tensor_map(chunk_tile(x, static_cast<int>(x.shape[0]), 2 * plan.parts), x.data);
  plan.variant->launch({.product = params,
                        .quarters = plan.quarters,
                        .parts = plan.parts,
                        .stages = plan.stages,
                        .stage_bytes = plan.stage_bytes},
                       {.blocks = plan.blocks, .warps = plan.warps, .stream = stream});
}

void run_panels(const Int4Plan& plan, Int4Params params, const TensorView& x, cudaStream_t stream) {
  const Int4Config& config = plan.variant->config;
  params.x = encode_tensor_map(chunk_tile(x, config.tokens, 2 * config.chunk_steps), x.data);
  plan.variant->launch(params, plan.grid, stream);
}

class Int4Kernel final : public Kernel<Projection> {
 public:
  explicit Int4Kernel(const FusedQkvProblem& problem)
      : waits_(!holds_plain_floats(problem.cache.row_format)),
        workspace_bytes_(waits_ ? deferred_rows_bytes(problem) : 0) {
    const std::int64_t kv_dim = problem.cache.row_format.width() * problem.cache.num_kv_heads;
    const Int4Shape shape{.tokens = problem.ragged.tokens,
                          .columns = problem.q_dim + (problem.cache.is_mla ? 1 : 2) * kv_dim,
                          .dtype = problem.x_dtype,
                          .steps = steps_of(problem.hidden),
                          .batch_invariant = problem.batch_invariant};
    if (shape.tokens == 0 || shape.columns == 0) return;
    const int sms = num_sms(problem.device.index);
    few_ = plan_few_tokens(shape, sms);
    if (few_.variant == nullptr) panels_ = plan_int4(shape, sms);
  }

  std::int64_t workspace_bytes() const override { return workspace_bytes_; }

  Choices choices() const override {
    if (few_.variant != nullptr) {
      return {{"kernel", std::string(few_.variant->name)}, {"blocks", std::to_string(few_.blocks)}};
    }
    if (panels_.variant == nullptr) return {};
    return {{"kernel", std::string(panels_.variant->name)},
            {"blocks", std::to_string(panels_.grid.columns * panels_.grid.tokens)}};
  }

  void run(const Projection& args, const Context& context) const override {
    if (few_.variant == nullptr && panels_.variant == nullptr) return;
    const DeviceScope scope(args.x.device);
    auto* rows = static_cast<float*>(context.workspace);
    const Int4Params params{
        .weight = args.weight.data.as<const std::byte>(),
        .order = order_of(args.weight),
        .outputs = waits_ ? deferred_outputs(make_outputs(args), rows) : make_outputs(args),
        .overlaps_previous = context.overlaps_previous,
    };
    const auto stream = static_cast<cudaStream_t>(context.stream);
    if (few_.variant != nullptr) {
      run_few_tokens(few_, params, args.x, stream);
    } else {
      run_panels(panels_, params, args.x, stream);
    }
    if (waits_) store_deferred_rows(args, context, rows);
  }

 private:
  bool waits_;
  std::int64_t workspace_bytes_;
  FewTokensPlan few_{};  // without a variant: panels
  Int4Plan panels_{};
};

}  // namespace

std::string refuse_int4(const FusedQkvProblem& problem) {
  const std::string reason = refuse_unless_sm90(problem.device);
  if (!problem.cache.values_match_keys) return "V's rows are not as far apart as K's";
  return reason.empty() ? refuse_int4_tiles(problem) : reason;
}

KernelPtr<Projection> prepare_int4(const FusedQkvProblem& problem) {
  return std::make_unique<const Int4Kernel>(problem);
}

}  // namespace quire::cuda::sm90::fused_qkv_matmul
