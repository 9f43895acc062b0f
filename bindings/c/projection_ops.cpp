// SPDX-License-Identifier: Apache-2.0
#include "op.h"
#include "quire/c/projection.h"
#include "quire/ops/fused_qkv_matmul.h"
#include "quire/ops/linear.h"

namespace quire::c {
namespace {

Activations read_activations(const Reader& in, std::int32_t value) {
  if (value == QUIRE_ACTIVATIONS_EXACT) return Activations::exact;
  if (value == QUIRE_ACTIVATIONS_INT8) return Activations::int8;
  in.fail("activations", "QUIRE_ACTIVATIONS_EXACT or QUIRE_ACTIVATIONS_INT8",
          std::to_string(value));
}

FusedQkvArgs read_fused_qkv(const Reader& in, const quire_fused_qkv_matmul_args& from) {
  return {
      .x = in.tensor("x", from.x),
      .row_offsets = in.indices("row_offsets", from.row_offsets),
      .weight = in.weight(from.weight),
      .cache = in.cache("cache", from.cache),
      .layer = from.layer,
      .bias = in.optional_tensor("bias", from.bias),
      .input_scale = in.optional_tensor("input_scale", from.input_scale),
      .out = in.tensor("out", from.out),
      .activations = read_activations(in, from.activations),
      .allow_fast_accum = in.flag("allow_fast_accum", from.allow_fast_accum),
      .allow_tf32 = in.flag("allow_tf32", from.allow_tf32),
      .batch_invariant = in.flag("batch_invariant", from.batch_invariant),
  };
}

LinearArgs read_linear(const Reader& in, const quire_linear_args& from) {
  return {
      .x = in.tensor("x", from.x),
      .weight = in.weight(from.weight),
      .bias = in.optional_tensor("bias", from.bias),
      .input_scale = in.optional_tensor("input_scale", from.input_scale),
      .out = in.tensor("out", from.out),
      .activations = read_activations(in, from.activations),
      .allow_fast_accum = in.flag("allow_fast_accum", from.allow_fast_accum),
      .allow_tf32 = in.flag("allow_tf32", from.allow_tf32),
      .batch_invariant = in.flag("batch_invariant", from.batch_invariant),
  };
}

constexpr Op<quire_fused_qkv_matmul_args, FusedQkvArgs> kFusedQkvMatmul(
    "fused_qkv_matmul", {.required = offsetof(quire_fused_qkv_matmul_args, bias),
                         .read = read_fused_qkv,
                         .run = fused_qkv_matmul});

constexpr Op<quire_linear_args, LinearArgs> kLinear(
    "linear", {.required = offsetof(quire_linear_args, bias), .read = read_linear, .run = linear});

constexpr NumberedOp kOps[] = {{QUIRE_OP_FUSED_QKV_MATMUL, &kFusedQkvMatmul},
                               {QUIRE_OP_LINEAR, &kLinear}};

}  // namespace

std::span<const NumberedOp> projection_ops() {
  return kOps;
}

}  // namespace quire::c

quire_status quire_fused_qkv_matmul(const quire_fused_qkv_matmul_args* args,
                                    const quire_context* context) {
  return quire::c::kFusedQkvMatmul.call(args, context);
}

quire_status quire_linear(const quire_linear_args* args, const quire_context* context) {
  return quire::c::kLinear.call(args, context);
}
