// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "cpu/mla_prefill/mla_prefill.h"
#include "cpu/mla_prefill/mla_prefill_plan.h"
#include "cuda/kernels.h"
#include "ops/argument.h"
#include "ops/attention_check.h"
#include "ops/cache_check.h"
#include "ops/dispatch.h"
#include "ops/latent_check.h"
#include "ops/memory_span.h"
#include "ops/mla_prefill/chunk_check.h"
#include "quire/ops/mla_prefill.h"
#include "reference/mla_prefill.h"
#include "reference/mla_prefill_plan.h"

namespace quire {
namespace {

using ops::Arguments;

bool finishes_rows(const MlaPrefillArgs& args) {
  return args.freqs_cis.has_value();
}

ops::PagedBatch check_inputs(Arguments& check, const MlaPrefillArgs& args) {
  const ops::TensorArgument q = check.tensor("q", args.q);
  q.is(ops::kActivations, {"tokens", "heads", "nope + rope"}).has_full_rows().has_dense_rows();
  if (finishes_rows(args)) q.is_written();
  const ops::CacheUse use{
      .layer = args.layer,
      .access = finishes_rows(args) ? ops::CacheAccess::write : ops::CacheAccess::read,
      .kind = ops::CacheKind::mla,
      .takes_power_scales = !finishes_rows(args)};
  return ops::check_batch(check, args.cache, use, args.row_offsets, args.q.shape[0]);
}

// The up-projection, whose shape decides how rows and heads divide.
ops::LatentDims check_projection(Arguments& check, const MlaPrefillArgs& args,
                                 const ops::PagedBatch& batch) {
  ops::check_attention_out(check, args.out, args.q, "value");
  check.tensor("kv_b_proj", args.kv_b_proj)
      .is(ops::kFloats, {"heads · (nope + value)", "latent"})
      .has_dense_rows();
  const ops::LatentDims dims = ops::check_latent_dims(
      check, batch.head_dim(), args.kv_b_proj.shape[1], "kv_b_proj", args.q.shape[2]);
  const std::int64_t rows = ops::saturating_product(args.q.shape[1], dims.nope + args.out.shape[2]);
  if (args.kv_b_proj.shape[0] != rows) {
    check.fail("kv_b_proj",
               fmt::format("{}[{}, {}]", name(args.kv_b_proj.dtype), rows, dims.latent),
               args.kv_b_proj.describe());
  }
  ops::check_block_scale(check, "kv_b_proj_scale", args.kv_b_proj_scale, args.kv_b_proj);
  return dims;
}

// What mla_decode does not have, a batch that is decoded in part may not ask for.
void check_decoded_part(const Arguments& check, const MlaPrefillArgs& args,
                        const ops::LatentDims& dims) {
  if (args.chunks.decode_tokens == 0) return;
  constexpr const char* kWith = "with chunks.decode_tokens";
  if (args.softcap != 0.0) {
    check.fail("softcap", fmt::format("0 {}", kWith), fmt::format("{}", args.softcap));
  }
  if (args.alibi_slopes.has_value()) {
    check.fail("alibi_slopes", fmt::format("none {}", kWith), args.alibi_slopes->describe());
  }
  // Tokens that are decoded are rows of another batch: what a mask says of row t would be another's.
  const MaskSummary mask = args.mask.summary();
  if (mask.trees > 0 || mask.key_intervals > 0) {
    check.fail("mask", fmt::format("without trees and key intervals {}", kWith),
               args.mask.describe());
  }
  const std::int64_t value = args.out.shape[2];
  const bool has_whole_blocks = (dims.nope | value) % ops::kScaleBlock == 0;
  if (args.kv_b_proj_scale.has_value() && !has_whole_blocks) {
    check.fail("kv_b_proj_scale",
               fmt::format("of nope and value of a multiple of {} {}", ops::kScaleBlock, kWith),
               fmt::format("nope {} and value {}", dims.nope, value));
  }
}

const ops::Dispatch<MlaPrefillProblem, MlaPrefillArgs>& dispatch() {
  static const ops::Dispatch<MlaPrefillProblem, MlaPrefillArgs> table(
      "mla_prefill",
      {
          .cuda = cuda::mla_prefill_kernels(),
          .run_on_cpu = cpu::mla_prefill,
          .run_reference = [](const MlaPrefillArgs& args) { reference::mla_prefill(args); },
      });
  return table;
}

const ops::Dispatch<MlaPrefillPlanProblem, MlaPrefillPlanArgs>& dispatch_plan() {
  static const ops::Dispatch<MlaPrefillPlanProblem, MlaPrefillPlanArgs> table(
      "mla_prefill_plan",
      {
          .cuda = cuda::mla_prefill_plan_kernels(),
          .run_on_cpu = [](const MlaPrefillPlanArgs& args, const Context&,
                           cpu::Target) { cpu::mla_prefill_plan(args); },
          .run_reference =
              [](const MlaPrefillPlanArgs& args) { reference::mla_prefill_plan(args); },
      });
  return table;
}

}  // namespace

MlaPrefillProblem validate(const MlaPrefillArgs& args) {
  Arguments check("mla_prefill");
  const ops::PagedBatch batch = check_inputs(check, args);
  const ops::LatentDims dims = check_projection(check, args, batch);
  ops::check_finish(check,
                    {.freqs_cis = args.freqs_cis,
                     .kv_norm_gamma = args.kv_norm_gamma,
                     .kv = args.kv,
                     .epsilon = args.epsilon},
                    dims, batch);
  check.is_positive("scale", args.scale);
  ops::check_chunk_shapes(check, args.chunks, batch.ragged.batch, ops::ChunkUse::followed);
  ops::check_chunk_cover(check, args.chunks, args.cache, args.row_offsets);
  ops::check_mask(check, args.mask, batch.ragged);
  ops::check_softcap(check, args.softcap);
  ops::check_per_head(check, "alibi_slopes", args.alibi_slopes, args.q.shape[1]);
  ops::check_per_head(check, "sinks", args.sinks, args.q.shape[1]);
  ops::check_lse(check, args.lse, args.q.shape[0], args.q.shape[1]);
  check_decoded_part(check, args, dims);
  check.outputs_do_not_overlap();
  return {.device = check.device(),
          .ragged = batch.ragged,
          .cache = batch.cache,
          .heads = args.q.shape[1],
          .latent_dim = dims.latent,
          .nope_dim = dims.nope,
          .rope_dim = dims.rope,
          .value_dim = args.out.shape[2],
          .scale = args.scale,
          .q_dtype = args.q.dtype,
          .weight_dtype = args.kv_b_proj.dtype,
          .out_dtype = args.out.dtype,
          .alignment = std::min({ops::row_alignment(args.q), ops::row_alignment(args.out),
                                 ops::row_alignment(args.kv_b_proj)}),
          .cache_alignment = ops::row_alignment(args.cache.blocks),
          .buffer_tokens = args.chunks.buffer_tokens,
          .max_chunks = args.chunks.buffer_lengths.shape[0],
          .decode_tokens = args.chunks.decode_tokens,
          .mask = args.mask.summary(),
          .finishes_rows = finishes_rows(args),
          .allow_fp8_products = args.allow_fp8_products,
          .batch_invariant = args.batch_invariant};
}

MlaPrefillPlanProblem validate(const MlaPrefillPlanArgs& args) {
  Arguments check("mla_prefill_plan");
  const ops::PagedBatch batch =
      ops::check_batch(check, args.cache, {.layer = args.layer, .kind = ops::CacheKind::mla},
                       args.row_offsets, std::nullopt);
  ops::check_chunk_shapes(check, args.chunks, batch.ragged.batch, ops::ChunkUse::filled_in);
  check.outputs_do_not_overlap();
  const MlaPrefillPlanProblem problem{.device = check.device()};
  if (!ops::is_on_host(args.row_offsets)) return problem;
  const std::int64_t given = args.chunks.buffer_lengths.shape[0];
  const std::int64_t needed = ops::count_chunks(args.cache, args.row_offsets, args.chunks);
  if (given < needed) {
    check.fail("chunks",
               fmt::format("{} chunks of {} tokens or more", needed, args.chunks.buffer_tokens),
               std::to_string(given));
  }
  return problem;
}

Prepared<MlaPrefillProblem> prepare(const MlaPrefillProblem& problem, const Context& context) {
  return dispatch().prepare("mla_prefill", problem, context);
}

Plan plan(const MlaPrefillProblem& problem, const Context& context) {
  return prepare(problem, context).plan();
}

Plan supports(const MlaPrefillArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void run(const Prepared<MlaPrefillProblem>& prepared, const MlaPrefillArgs& args,
         const Context& context) {
  dispatch().run_checked(prepared, validate(args), args, context);
}

void mla_prefill(const MlaPrefillArgs& args, const Context& context) {
  dispatch().run(prepare(validate(args), context), args, context);
}

Prepared<MlaPrefillPlanProblem> prepare(const MlaPrefillPlanProblem& problem,
                                        const Context& context) {
  return dispatch_plan().prepare("mla_prefill_plan", problem, context);
}

Plan plan(const MlaPrefillPlanProblem& problem, const Context& context) {
  return prepare(problem, context).plan();
}

Plan supports(const MlaPrefillPlanArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void run(const Prepared<MlaPrefillPlanProblem>& prepared, const MlaPrefillPlanArgs& args,
         const Context& context) {
  dispatch_plan().run_checked(prepared, validate(args), args, context);
}

void mla_prefill_plan(const MlaPrefillPlanArgs& args, const Context& context) {
  dispatch_plan().run(prepare(validate(args), context), args, context);
}

std::int64_t mla_prefill_num_chunks(const TensorView& row_offsets, const PagedKVCache& cache,
                                    std::int64_t buffer_tokens, std::int64_t decode_tokens) {
  ops::Arguments check("mla_prefill_num_chunks");
  ops::check_batch(check, cache, {.kind = ops::CacheKind::mla}, row_offsets, std::nullopt);
  check.is_at_least("buffer_tokens", buffer_tokens, 1);
  if (!ops::is_on_host(row_offsets)) return ops::most_chunks(cache, buffer_tokens);
  MlaPrefillChunks chunks;
  chunks.buffer_tokens = buffer_tokens;
  chunks.decode_tokens = decode_tokens;
  return ops::count_chunks(cache, row_offsets, chunks);
}

}  // namespace quire
