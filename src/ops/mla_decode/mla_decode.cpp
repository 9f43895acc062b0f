// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "cpu/mla_decode/mla_decode.h"
#include "cuda/kernels.h"
#include "ops/argument.h"
#include "ops/attention_check.h"
#include "ops/cache_check.h"
#include "ops/dispatch.h"
#include "ops/latent_check.h"
#include "ops/memory_span.h"
#include "quire/ops/mla_decode.h"
#include "reference/mla_decode.h"

namespace quire {
namespace {

using ops::Arguments;

bool is_absorbed(const MlaDecodeArgs& args) {
  return !args.w_uk.has_value();
}
bool finishes_rows(const MlaDecodeArgs& args) {
  return args.freqs_cis.has_value();
}

ops::PagedBatch check_inputs(Arguments& check, const MlaDecodeArgs& args) {
  check.tensor("q", args.q)
      .is(ops::kActivations,
          {"tokens", "heads", is_absorbed(args) ? "latent + rope" : "nope + rope"})
      .has_full_rows()
      .has_dense_rows();
  const ops::CacheUse use{
      .layer = args.layer,
      .access = finishes_rows(args) ? ops::CacheAccess::write : ops::CacheAccess::read,
      .kind = ops::CacheKind::mla,
      .key_lengths = args.key_lengths ? &*args.key_lengths : nullptr,
      .takes_power_scales = !finishes_rows(args)};
  const ops::PagedBatch batch =
      ops::check_batch(check, args.cache, use, args.row_offsets, args.q.shape[0]);
  if (args.key_lengths.has_value() && finishes_rows(args)) {
    check.fail("key_lengths", "absent where new rows are finished (freqs_cis)",
               args.key_lengths->describe());
  }
  if (batch.ragged.max_new_tokens > kMlaDecodeMaxNewTokens) {
    check.fail("row_offsets",
               fmt::format("at most {} new tokens for a sequence", kMlaDecodeMaxNewTokens),
               std::to_string(batch.ragged.max_new_tokens));
  }
  ops::check_attention_out(check, args.out, args.q, is_absorbed(args) ? "latent" : "value");
  return batch;
}

ops::LatentDims check_absorbed(const Arguments& check, const MlaDecodeArgs& args,
                               const ops::PagedBatch& batch) {
  if (args.q.shape[2] != batch.head_dim()) {
    check.fail("q", fmt::format("{} wide like the cache, as there is no w_uk", batch.head_dim()),
               args.q.describe());
  }
  ops::LatentDims dims =
      ops::check_latent_dims(check, batch.head_dim(), args.out.shape[2], "out", args.q.shape[2]);
  dims.nope = 0;
  return dims;
}

ops::LatentDims check_weights(Arguments& check, const MlaDecodeArgs& args,
                              const ops::PagedBatch& batch) {
  const std::int64_t heads = args.q.shape[1];
  check.tensor("w_uk", *args.w_uk).is(ops::kFloats, {heads, "latent", "nope"});
  const ops::LatentDims dims =
      ops::check_latent_dims(check, batch.head_dim(), args.w_uk->shape[1], "w_uk", args.q.shape[2]);
  if (args.w_uk->shape[2] != dims.nope) {
    check.fail("w_uk",
               fmt::format("{}[{}, {}, {}]", name(args.w_uk->dtype), heads, dims.latent, dims.nope),
               args.w_uk->describe());
  }
  ops::check_block_scale(check, "w_uk_scale", args.w_uk_scale, *args.w_uk);
  check.tensor("w_uv", *args.w_uv).is(args.w_uk->dtype, {heads, args.out.shape[2], dims.latent});
  ops::check_block_scale(check, "w_uv_scale", args.w_uv_scale, *args.w_uv);
  return dims;
}

ops::LatentDims check_dims(Arguments& check, const MlaDecodeArgs& args,
                           const ops::PagedBatch& batch) {
  if (args.w_uk.has_value() != args.w_uv.has_value()) {
    check.fail(args.w_uk.has_value() ? "w_uv" : "w_uk",
               args.w_uk.has_value() ? "given together with w_uk" : "given together with w_uv",
               "none");
  }
  return is_absorbed(args) ? check_absorbed(check, args, batch) : check_weights(check, args, batch);
}

const ops::Dispatch<MlaDecodeProblem, MlaDecodeArgs>& dispatch() {
  static const ops::Dispatch<MlaDecodeProblem, MlaDecodeArgs> table(
      "mla_decode",
      {
          .cuda = cuda::mla_decode_kernels(),
          .run_on_cpu = cpu::mla_decode,
          .run_reference = [](const MlaDecodeArgs& args) { reference::mla_decode(args); },
      });
  return table;
}

}  // namespace

MlaDecodeProblem validate(const MlaDecodeArgs& args) {
  Arguments check("mla_decode");
  const ops::PagedBatch batch = check_inputs(check, args);
  const ops::LatentDims dims = check_dims(check, args, batch);
  ops::check_finish(check,
                    {.freqs_cis = args.freqs_cis,
                     .kv_norm_gamma = args.kv_norm_gamma,
                     .kv = args.kv,
                     .epsilon = args.epsilon},
                    dims, batch);
  check.is_positive("scale", args.scale);
  ops::check_mask(check, args.mask, batch.ragged);
  ops::check_per_head(check, "sinks", args.sinks, args.q.shape[1]);
  ops::check_lse(check, args.lse, args.q.shape[0], args.q.shape[1]);
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
          .out_dtype = args.out.dtype,
          .weight_dtype = is_absorbed(args) ? args.q.dtype : args.w_uk->dtype,
          .mask = args.mask.summary(),
          .finishes_rows = finishes_rows(args),
          .batch_invariant = args.batch_invariant,
          .allow_fp8_products = args.allow_fp8_products,
          .alignment = std::min({ops::row_alignment(args.q), ops::row_alignment(args.out),
                                 ops::row_alignment(args.cache.blocks)})};
}

Prepared<MlaDecodeProblem> prepare(const MlaDecodeProblem& problem, const Context& context) {
  return dispatch().prepare("mla_decode", problem, context);
}

Plan plan(const MlaDecodeProblem& problem, const Context& context) {
  return prepare(problem, context).plan();
}

Plan supports(const MlaDecodeArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void run(const Prepared<MlaDecodeProblem>& prepared, const MlaDecodeArgs& args,
         const Context& context) {
  dispatch().run_checked(prepared, validate(args), args, context);
}

void mla_decode(const MlaDecodeArgs& args, const Context& context) {
  dispatch().run(prepare(validate(args), context), args, context);
}

}  // namespace quire
