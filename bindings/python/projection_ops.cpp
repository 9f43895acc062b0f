// SPDX-License-Identifier: Apache-2.0
// Products with a weight: into the pages, and without a cache.
#include "module.h"
#include "quire/ops/fused_qkv_matmul.h"
#include "quire/ops/linear.h"

namespace nb = nanobind;

namespace quire::python {
namespace {

Activations read_activations(const ArgumentReader& in, std::string_view op) {
  const Place place{op, "activations"};
  const nb::object given = in.find("activations");
  const std::string name = text(given, place, "'exact' or 'int8'");
  if (name == "exact") return Activations::exact;
  if (name == "int8") return Activations::int8;
  refuse(ErrorCode::invalid_value, place, "'exact' or 'int8'", given);
}

FusedQkvArgs read_fused_qkv(ArgumentReader& in) {
  return {
      .x = in.tensor("x"),
      .row_offsets = in.indices("row_offsets"),
      .weight = in.weight(),
      .cache = in.cache("cache", Access::write),
      .layer = in.value<std::int64_t>("layer"),
      .bias = in.optional_tensor("bias"),
      .input_scale = in.optional_tensor("input_scale"),
      .out = in.tensor("out", Access::write),
      .activations = read_activations(in, "fused_qkv_matmul"),
      .allow_fast_accum = in.value<bool>("allow_fast_accum"),
      .allow_tf32 = in.value<bool>("allow_tf32"),
      .batch_invariant = in.value<bool>("batch_invariant"),
  };
}

LinearArgs read_linear(ArgumentReader& in) {
  return {
      .x = in.tensor("x"),
      .weight = in.weight(),
      .bias = in.optional_tensor("bias"),
      .input_scale = in.optional_tensor("input_scale"),
      .out = in.tensor("out", Access::write),
      .activations = read_activations(in, "linear"),
      .allow_fast_accum = in.value<bool>("allow_fast_accum"),
      .allow_tf32 = in.value<bool>("allow_tf32"),
      .batch_invariant = in.value<bool>("batch_invariant"),
  };
}

}  // namespace

void bind_projection_ops(nb::module_& module) {
  bind_op(module, "fused_qkv_matmul", read_fused_qkv, fused_qkv_matmul);
  bind_op(module, "linear", read_linear, linear);
}

}  // namespace quire::python
