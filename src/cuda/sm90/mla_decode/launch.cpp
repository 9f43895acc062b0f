// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_decode/launch.h"

#include "cuda/common/runtime/carver.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/device_scope.h"
#include "cuda/sm90/mla_decode/plan_decode.h"
#include "cuda/sm90/mla_decode/projections.h"

namespace quire::cuda::sm90::mla_decode {
namespace {

constexpr double kLog2E = 1.4426950408889634;

LatentPieces carve_pieces(Carver& carver, const MlaDecodePlan& plan) {
  const int rows = plan.variant->rows;
  float* sums = carver.take<float>(plan.slots * rows * LatentConfig::kLatent);
  return {.sums = sums,
          .stats = carver.take<float2>(plan.slots * rows),
          .rows = rows,
          .notes = plan.variant->leaves_notes ? carver.take<PieceNote>(plan.most_items) : nullptr};
}

LatentOutputs make_outputs(const MlaDecodeArgs& args) {
  LatentOutputs outputs{.out = static_cast<std::byte*>(args.out.data),
                        .token_stride_bytes = bytes_for(args.out.dtype, args.out.strides[0]),
                        .head_stride_bytes = bytes_for(args.out.dtype, args.out.strides[1])};
  if (args.lse.has_value()) {
    outputs.lse = args.lse->as<float>();
    outputs.lse_token_stride = args.lse->strides[0];
    outputs.lse_head_stride = args.lse->strides[1];
  }
  if (args.sinks.has_value()) {
    outputs.sinks = args.sinks->as<const float>();
    outputs.sinks_stride = args.sinks->strides[0];
  }
  return outputs;
}

LatentParams make_attend(const MlaDecodeArgs& args, const VisibleRange& visible,
                         const LatentPieces& pieces) {
  return {.queries = {.data = static_cast<const std::byte*>(args.q.data),
                      .token_stride_bytes = bytes_for(args.q.dtype, args.q.strides[0]),
                      .head_stride_bytes = bytes_for(args.q.dtype, args.q.strides[1])},
          .heads = static_cast<int>(args.q.shape[1]),
          .to_log2 = static_cast<float>(args.scale * kLog2E),
          .visible = visible,
          .outputs = make_outputs(args),
          .pieces = pieces};
}

LatentRowFormat make_format(const KvLayerView& rows) {
  const RowFormat& format = rows.row_format;
  if (format.is_uniform()) {
    return {.rope_offset_bytes = LatentConfig::kLatent, .has_fp8_rope = true};
  }
  LatentRowFormat made{.rope_offset_bytes = format.parts[1].offset_bytes};
  if (format.parts[0].scale_source == ScaleSource::in_row) {
    made.row_scales_offset_bytes = format.parts[0].scale_offset_bytes;
  } else {
    made.token_scales = reinterpret_cast<const float*>(rows.scales.data);
    made.scale_page_stride = rows.scales.page_stride;
    made.scale_token_stride = rows.scales.token_stride;
    made.scale_pages = PageTable::of_scales(rows);
  }
  return made;
}

// q absorbed and rotated, out of latent columns.
void attend_latents(const MlaDecodeArgs& args, const MlaDecodePlan& plan,
                    const VisibleRange& visible, const LatentPieces& pieces, cudaStream_t stream) {
  const KvLayerView rows = args.cache.key(args.layer).with_keys(args.key_lengths);
  const LatentParams attend = make_attend(args, visible, pieces);
  MlaDecodeParams params{.attend = attend,
                         .batch = {.row_offsets = args.row_offsets.as<const std::uint32_t>(),
                                   .cache_lengths = rows.cache_lengths,
                                   .key_lengths = rows.key_lengths,
                                   .size = static_cast<int>(rows.batch),
                                   .kv_heads = 1,
                                   .group = attend.heads,
                                   .tile_tokens = plan.tile_tokens,
                                   .visible = attend.visible},
                         .split = plan.split,
                         .pages = {.kv = PagedOperand::of(rows, nullptr)}};
  if (plan.variant->latents != DType::bf16) params.format = make_format(rows);
  plan.variant->set_maps(params);
  plan.variant->launch(params, stream);
  // Notes are there after the kernel's end. Where the kernel that merges has room before, it finds out itself (merge.cu).
  if (plan.leaves_room) params.attend.pieces.notes = nullptr;
  merge_mla_pieces(params, plan.items, plan.split.blocks * plan.variant->cluster, stream);
}

std::string refuse(const MlaDecodeProblem& problem, DType latents) {
  std::string elsewhere = refuse_unless_sm90(problem.device);
  if (!elsewhere.empty()) return elsewhere;
  const DType dtype = problem.cache.row_format.parts[0].dtype;
  if (dtype != latents) return "latents of " + std::string(name(dtype));
  return refuse_mla_decode_problem(problem);
}

class LatentKernel final : public Kernel<MlaDecodeArgs> {
 public:
  explicit LatentKernel(const MlaDecodeProblem& problem)
      : problem_(problem), plan_(plan_mla_decode(problem, num_sms(problem.device.index))) {}

  std::int64_t workspace_bytes() const override {
    Carver counter;
    static_cast<void>(carve_pieces(counter, plan_));
    static_cast<void>(carve_projections(counter, problem_));
    return counter.bytes();
  }

  Choices choices() const override {
    return {{"kernel", std::string(plan_.variant->name)},
            {"tile_tokens", std::to_string(plan_.tile_tokens)}};
  }

  void run(const MlaDecodeArgs& args, const Context& context) const override {
    if (args.q.shape[0] == 0 || args.cache.batch() == 0) return;
    const DeviceScope scope(args.q.device);
    Carver carver(context.workspace);
    const LatentPieces pieces = carve_pieces(carver, plan_);
    const ProjectionScratch scratch = carve_projections(carver, problem_);
    const MlaDecodeArgs absorbed = absorb_queries(args, scratch, context);
    attend_latents(absorbed, plan_, visible_range(problem_.mask), pieces,
                   static_cast<cudaStream_t>(context.stream));
    project_values(args, absorbed, context);
  }

 private:
  MlaDecodeProblem problem_;
  MlaDecodePlan plan_;
};

}  // namespace

std::string refuse_mla_decode_bf16(const MlaDecodeProblem& problem) {
  return refuse(problem, DType::bf16);
}

std::string refuse_mla_decode_fp8(const MlaDecodeProblem& problem) {
  return refuse(problem, DType::fp8_e4m3);
}

KernelPtr<MlaDecodeArgs> prepare_mla_decode(const MlaDecodeProblem& problem) {
  return std::make_unique<const LatentKernel>(problem);
}

}  // namespace quire::cuda::sm90::mla_decode
