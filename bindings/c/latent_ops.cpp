// SPDX-License-Identifier: Apache-2.0
#include "op.h"
#include "quire/c/latent.h"
#include "quire/ops/mla_decode.h"
#include "quire/ops/mla_prefill.h"

namespace quire::c {
namespace {

MlaPrefillPlanArgs read_mla_prefill_plan(const Reader& in,
                                         const quire_mla_prefill_plan_args& from) {
  return {
      .row_offsets = in.indices("row_offsets", from.row_offsets),
      .cache = in.cache("cache", from.cache),
      .layer = from.layer,
      .chunks = in.chunks(from.chunks),
  };
}

MlaPrefillArgs read_mla_prefill(const Reader& in, const quire_mla_prefill_args& from) {
  static const MlaPrefillArgs defaults{};
  return {
      .q = in.tensor("q", from.q),
      .row_offsets = in.indices("row_offsets", from.row_offsets),
      .cache = in.cache("cache", from.cache),
      .layer = from.layer,
      .freqs_cis = in.optional_tensor("freqs_cis", from.freqs_cis),
      .kv_norm_gamma = in.optional_tensor("kv_norm_gamma", from.kv_norm_gamma),
      .kv = in.optional_tensor("kv", from.kv),
      .kv_b_proj = in.tensor("kv_b_proj", from.kv_b_proj),
      .kv_b_proj_scale = in.optional_tensor("kv_b_proj_scale", from.kv_b_proj_scale),
      .scale = from.scale,
      .epsilon = given_or(from.epsilon, defaults.epsilon),
      .chunks = in.chunks(from.chunks),
      .mask = in.mask(from.mask),
      .softcap = from.softcap,
      .alibi_slopes = in.optional_tensor("alibi_slopes", from.alibi_slopes),
      .sinks = in.optional_tensor("sinks", from.sinks),
      .out = in.tensor("out", from.out),
      .lse = in.optional_tensor("lse", from.lse),
      .allow_fp8_products = in.flag("allow_fp8_products", from.allow_fp8_products),
      .batch_invariant = in.flag("batch_invariant", from.batch_invariant),
  };
}

MlaDecodeArgs read_mla_decode(const Reader& in, const quire_mla_decode_args& from) {
  static const MlaDecodeArgs defaults{};
  return {
      .q = in.tensor("q", from.q),
      .row_offsets = in.indices("row_offsets", from.row_offsets),
      .cache = in.cache("cache", from.cache),
      .layer = from.layer,
      .freqs_cis = in.optional_tensor("freqs_cis", from.freqs_cis),
      .kv_norm_gamma = in.optional_tensor("kv_norm_gamma", from.kv_norm_gamma),
      .kv = in.optional_tensor("kv", from.kv),
      .w_uk = in.optional_tensor("w_uk", from.w_uk),
      .w_uk_scale = in.optional_tensor("w_uk_scale", from.w_uk_scale),
      .w_uv = in.optional_tensor("w_uv", from.w_uv),
      .w_uv_scale = in.optional_tensor("w_uv_scale", from.w_uv_scale),
      .scale = from.scale,
      .epsilon = given_or(from.epsilon, defaults.epsilon),
      .mask = in.mask(from.mask),
      .sinks = in.optional_tensor("sinks", from.sinks),
      .out = in.tensor("out", from.out),
      .lse = in.optional_tensor("lse", from.lse),
      .batch_invariant = in.flag("batch_invariant", from.batch_invariant),
      .allow_fp8_products = in.flag("allow_fp8_products", from.allow_fp8_products),
      .key_lengths = in.optional_indices("key_lengths", from.key_lengths),
  };
}

constexpr Op<quire_mla_prefill_plan_args, MlaPrefillPlanArgs> kMlaPrefillPlan(
    "mla_prefill_plan", {.required = sizeof(quire_mla_prefill_plan_args),
                         .read = read_mla_prefill_plan,
                         .run = mla_prefill_plan});
constexpr Op<quire_mla_prefill_args, MlaPrefillArgs> kMlaPrefill(
    "mla_prefill", {.required = offsetof(quire_mla_prefill_args, freqs_cis),
                    .read = read_mla_prefill,
                    .run = mla_prefill});
constexpr Op<quire_mla_decode_args, MlaDecodeArgs> kMlaDecode(
    "mla_decode", {.required = offsetof(quire_mla_decode_args, freqs_cis),
                   .read = read_mla_decode,
                   .run = mla_decode});

constexpr NumberedOp kOps[] = {
    {QUIRE_OP_MLA_PREFILL_PLAN, &kMlaPrefillPlan},
    {QUIRE_OP_MLA_PREFILL, &kMlaPrefill},
    {QUIRE_OP_MLA_DECODE, &kMlaDecode},
};

DLTensor& room_for(const Reader& in, const char* argument, DLTensor* given) {
  if (given == nullptr || given->shape == nullptr || given->strides == nullptr) {
    in.fail(argument, "a DLTensor with room for a shape and strides", "NULL");
  }
  return *given;
}

void absorb(const quire_absorb_kv_b_proj_args* given) {
  const Reader in("absorb_kv_b_proj");
  const auto from = in.structure<quire_absorb_kv_b_proj_args>(
      "args", given, offsetof(quire_absorb_kv_b_proj_args, kv_b_proj_scale));
  const TensorView kv_b_proj = in.tensor("kv_b_proj", from.kv_b_proj);
  const AbsorbedWeights views =
      absorb_kv_b_proj(kv_b_proj, from.heads, from.nope,
                       in.optional_tensor("kv_b_proj_scale", from.kv_b_proj_scale));
  DLTensor& w_uk = room_for(in, "w_uk", from.w_uk);
  DLTensor& w_uv = room_for(in, "w_uv", from.w_uv);
  const DLDevice device = from.kv_b_proj->device;
  if (views.w_uk_scale.has_value() && views.w_uv_scale.has_value()) {
    DLTensor& w_uv_scale = room_for(in, "w_uv_scale", from.w_uv_scale);
    write_tensor(*views.w_uk_scale, device, room_for(in, "w_uk_scale", from.w_uk_scale));
    write_tensor(*views.w_uv_scale, device, w_uv_scale);
  }
  write_tensor(views.w_uk, device, w_uk);
  write_tensor(views.w_uv, device, w_uv);
}

// The op whose question it is.
std::int64_t num_chunks(const Reader& in, const TensorView& row_offsets, const PagedKVCache& cache,
                        const MlaPrefillChunks& sizes) {
  try {
    return mla_prefill_num_chunks(row_offsets, cache, sizes.buffer_tokens, sizes.decode_tokens);
  } catch (const Error& error) {
    throw Error(error.code(), std::string(in.op()), error.argument(), error.expected(),
                error.actual());
  }
}

}  // namespace

std::span<const NumberedOp> latent_ops() {
  return kOps;
}

}  // namespace quire::c

quire_status quire_mla_prefill_num_chunks(const DLTensor* row_offsets, const quire_cache* cache,
                                          int64_t buffer_tokens, int64_t decode_tokens,
                                          int64_t* num_chunks) {
  const char* op = "mla_prefill_num_chunks";
  return quire::c::guarded(op, [&] {
    const quire::c::Reader in(op);
    if (num_chunks == nullptr) in.fail("num_chunks", "where the result goes", "NULL");
    quire::MlaPrefillChunks sizes;
    sizes.buffer_tokens = quire::c::given_or(buffer_tokens, sizes.buffer_tokens);
    sizes.decode_tokens = decode_tokens;
    *num_chunks = quire::c::num_chunks(in, in.indices("row_offsets", row_offsets),
                                       in.cache("cache", cache), sizes);
  });
}

quire_status quire_mla_prefill_plan(const quire_mla_prefill_plan_args* args,
                                    const quire_context* context) {
  return quire::c::kMlaPrefillPlan.call(args, context);
}

quire_status quire_mla_prefill(const quire_mla_prefill_args* args, const quire_context* context) {
  return quire::c::kMlaPrefill.call(args, context);
}

quire_status quire_mla_decode(const quire_mla_decode_args* args, const quire_context* context) {
  return quire::c::kMlaDecode.call(args, context);
}

quire_status quire_absorb_kv_b_proj(const quire_absorb_kv_b_proj_args* args) {
  return quire::c::guarded("absorb_kv_b_proj", [&] { quire::c::absorb(args); });
}
