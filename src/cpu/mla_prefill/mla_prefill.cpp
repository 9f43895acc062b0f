// SPDX-License-Identifier: Apache-2.0
// Queries rotated and new rows finished → attention over K and V that are projected up a segment of
// keys at a time. The chunks of the plan bound what a gathered buffer would hold; here no buffer is
// gathered at all, and the sum over all chunks is one online softmax. Sequences that are decoded go
// through mla_decode, neighbours together.
#include "cpu/mla_prefill/mla_prefill.h"

#include <vector>

#include "core/batch_part.h"
#include "core/split_kv_b_proj.h"
#include "cpu/attention/batch.h"
#include "cpu/attention/latent_batch.h"
#include "cpu/mla_decode/mla_decode.h"
#include "cpu/runtime/scratch.h"
#include "quire/paged_kv_operand.h"

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

// Sequences [first, last) of a batch, which all take the same branch.
struct SequenceRun {
  std::int64_t first;
  std::int64_t last;
  bool is_decoded;
};

std::vector<SequenceRun> split_by_branch(const std::vector<SequenceSpan>& sequences,
                                         const MlaPrefillChunks& chunks) {
  std::vector<SequenceRun> runs;
  for (std::int64_t i = 0; i < std::ssize(sequences); ++i) {
    const bool is_decoded = chunks.decodes(sequences[i].num_tokens);
    if (runs.empty() || runs.back().is_decoded != is_decoded) {
      runs.push_back({.first = i, .last = i, .is_decoded = is_decoded});
    }
    runs.back().last = i + 1;
  }
  return runs;
}

void attend(const MlaPrefillArgs& args, const SequenceRun& run, const Context& context,
            Target target) {
  const std::int64_t count = run.last - run.first;
  const PagedKvOperand keys(sequences_of(args.cache, run.first, count).key(args.layer));
  const AttentionBatch batch{
      .q = args.q,
      .row_offsets = rows_of(args.row_offsets, run.first, count + 1),
      .keys = keys,
      .mask = args.mask,
      .score = {.scale = args.scale, .softcap = static_cast<float>(args.softcap)},
      .slopes = args.alibi_slopes,
      .sinks = args.sinks,
      .out = args.out,
      .lse = args.lse,
      .up = up_projection(args),
      .projection_rows = args.kv_b_proj.shape[0] / args.q.shape[1]};
  BatchAttention attention(batch, context, target);
  attention.run(thread_scratch(attention.scratch_bytes()));
}

// The tokens of a run are rows [first_token, …) of q, out and lse. The run's rows are finished.
void decode(const MlaPrefillArgs& args, const SequenceRun& run,
            const std::vector<SequenceSpan>& sequences, const Context& context, Target target) {
  const std::int64_t first_token = sequences[run.first].first_token;
  std::vector<std::uint32_t> offsets{0};
  for (std::int64_t i = run.first; i < run.last; ++i) {
    offsets.push_back(offsets.back() + static_cast<std::uint32_t>(sequences[i].num_tokens));
  }
  const std::int64_t tokens = offsets.back();
  const UpProjection up = up_projection(args);
  const SplitKvBProj weights =
      split_kv_b_proj(args.kv_b_proj, args.q.shape[1], up.nope, args.kv_b_proj_scale);
  MlaDecodeArgs decoded{
      .q = rows_of(args.q, first_token, tokens),
      .row_offsets = TensorView::contiguous(offsets.data(), DType::u32, {std::ssize(offsets)}),
      .cache = sequences_of(args.cache, run.first, run.last - run.first),
      .layer = args.layer,
      .w_uk = weights.w_uk,
      .w_uk_scale = weights.w_uk_scale,
      .w_uv = weights.w_uv,
      .w_uv_scale = weights.w_uv_scale,
      .scale = args.scale,
      .mask = args.mask,
      .sinks = args.sinks,
      .out = rows_of(args.out, first_token, tokens)};
  if (args.lse.has_value()) decoded.lse = rows_of(*args.lse, first_token, tokens);
  mla_decode(decoded, context, target);
}

}  // namespace

void mla_prefill(const MlaPrefillArgs& args, const Context& context, Target target) {
  const PagedKvOperand rows(args.cache.key(args.layer));
  const NewLatents latents{.row_offsets = args.row_offsets,
                           .rows = rows,
                           .freqs_cis = args.freqs_cis,
                           .kv_norm_gamma = args.kv_norm_gamma,
                           .kv = args.kv,
                           .epsilon = args.epsilon};
  if (args.freqs_cis) rotate_queries(latents, args.q, args.q, 0, context, target);
  finish_new_rows(latents, context, target);
  const std::vector<SequenceSpan> sequences = sequence_spans(args.row_offsets, args.cache);
  for (const SequenceRun& run : split_by_branch(sequences, args.chunks)) {
    if (run.is_decoded) {
      decode(args, run, sequences, context, target);
    } else {
      attend(args, run, context, target);
    }
  }
}

}  // namespace quire::cpu
