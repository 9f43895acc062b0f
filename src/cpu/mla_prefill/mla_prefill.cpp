// SPDX-License-Identifier: Apache-2.0
// Queries rotated and new rows finished → attention over K and V that are projected up a segment of
// keys at a time. The chunks of the plan bound what a gathered buffer would hold; here no buffer is
// gathered at all, and the sum over all chunks is one online softmax.
#include "cpu/mla_prefill/mla_prefill.h"

#include "cpu/attention/batch.h"
#include "cpu/attention/latent_batch.h"
#include "cpu/runtime/scratch.h"

namespace quire::cpu {
namespace {

UpProjection up_projection(const MlaPrefillArgs& args) {
  const std::int64_t value = args.out.shape[2];
  const std::int64_t nope = args.kv_b_proj.shape[0] / args.q.shape[1] - value;
  const std::optional<TensorView>& scale = args.kv_b_proj_scale;
  return {.weight = args.kv_b_proj.as<const std::byte>(),
          .weight_dtype = args.kv_b_proj.dtype,
          .column_stride = args.kv_b_proj.strides[0],
          .depth_stride = args.kv_b_proj.strides[1],
          .scale = scale ? scale->as<const float>() : nullptr,
          .scale_row_stride = scale ? scale->strides[0] : 0,
          .scale_depth_stride = scale ? scale->strides[1] : 0,
          .first_row = 0,
          .latent = args.kv_b_proj.shape[1],
          .nope = nope,
          .rope = args.q.shape[2] - nope,
          .value = value,
          .rounded = args.q.dtype};
}

}  // namespace

std::string refuse(const MlaPrefillProblem&, Target target) {
  return why_not(target);
}

void mla_prefill(const MlaPrefillArgs& args, const Context& context, Target target) {
  const NewLatents latents{.row_offsets = args.row_offsets,
                           .cache = args.cache,
                           .layer = args.layer,
                           .freqs_cis = args.freqs_cis,
                           .kv_norm_gamma = args.kv_norm_gamma,
                           .kv = args.kv,
                           .epsilon = args.epsilon};
  if (args.freqs_cis) rotate_queries(latents, args.q, args.q, 0, context, target);
  finish_new_rows(latents, context, target);
  const AttentionBatch batch{.q = args.q,
                             .row_offsets = args.row_offsets,
                             .cache = args.cache,
                             .layer = args.layer,
                             .mask = args.mask,
                             .score = {.scale = static_cast<float>(args.scale),
                                       .softcap = static_cast<float>(args.softcap)},
                             .slopes = args.alibi_slopes,
                             .sinks = args.sinks,
                             .out = args.out,
                             .lse = args.lse,
                             .up = up_projection(args),
                             .projection_rows = args.kv_b_proj.shape[0] / args.q.shape[1]};
  BatchAttention attention(batch, context, target);
  attention.run(thread_scratch(attention.scratch_bytes()));
}

}  // namespace quire::cpu
